"""One engine, one test, one process: prints its samples as a line of JSON. Used by peers and load.

Each engine loads its model, runs the test once at the exact shape to warm up, and then times the
repetitions. All engines get the same synthetic ids. The other frameworks are imported only here, so
that the rest of the harness needs NumPy and Lily alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from lily.versus.child import synthetic_ids

from bench import machine
from bench.harness import timed


@dataclass(frozen=True)
class Test:
    """Prefill of `tokens` into an empty context, or decode of `tokens` after `context` others."""

    kind: str  # "pp" or "tg", as llama-bench calls them
    tokens: int
    context: int = 0

    @staticmethod
    def parse(text: str) -> Test:
        """Read "pp512", "tg64" or "tg64@512"."""
        found = re.fullmatch(r"(pp)(\d+)|(tg)(\d+)(?:@(\d+))?", text)
        if not found:
            raise ValueError(f"test '{text}' is not like pp512, tg64 or tg64@512")
        kind, tokens = found[1] or found[3], int(found[2] or found[4])
        if tokens < 1:
            raise ValueError(f"test '{text}' has no tokens")
        return Test(kind, tokens, int(found[5] or 0))

    def __str__(self) -> str:
        return f"{self.kind}{self.tokens}" + (f"@{self.context}" if self.context else "")


class LilySession:
    """Lily's native session, with prompts that share nothing with what it has seen."""

    def __init__(self, model: str, *, threads: int, context: int, device: str = "auto") -> None:
        from lily import _native

        # No prefix cache: what it gives is another benchmark's subject.
        self._engine = _native.Engine(
            model, device=device, max_context=context, cache_bytes=0, threads=threads
        )
        self.description = self._engine.device_description
        self._session = self._engine.session()
        self._session.set_sampler(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
        self._vocab = self._engine.vocab_size

    def plan(self) -> dict[str, int]:
        """The engine's memory plan."""
        return self._engine.plan()

    def prefill(self, tokens: int, prompt: int) -> float:
        """Seconds until the logits of the last token are ready."""
        ids = synthetic_ids(tokens, self._vocab, prompt)
        reused: list[int] = []
        seconds = timed(lambda: reused.append(self._session.prefill(ids)))
        if reused != [0]:
            raise RuntimeError(f"{reused[0]} tokens of the prompt were reused, expected none")
        return seconds

    def first_token(self, tokens: int, prompt: int) -> float:
        """Seconds until the first token of the answer is known."""
        return self.prefill(tokens, prompt) + timed(self._session.sampled)

    def decode(self, tokens: int, context: int, prompt: int) -> tuple[float, list[int]]:
        """(seconds, greedy tokens) of `tokens` steps after a prompt of `context`, at least 1."""
        return self.generate(max(context, 1), tokens, prompt)[1:]

    def generate(self, context: int, tokens: int, prompt: int) -> tuple[float, float, list[int]]:
        """(seconds to the first token, seconds of the steps, their greedy tokens)."""
        first = self.prefill(context, prompt)
        token, found = self._session.sampled().token_id, []

        def steps() -> None:
            nonlocal token
            for _ in range(tokens):
                token = self._session.step(token).token_id
                found.append(token)

        return first, timed(steps), found


def _lily(arguments: argparse.Namespace, test: Test) -> dict[str, Any]:
    context = test.context + test.tokens + 1
    session = LilySession(arguments.model, threads=arguments.threads, context=context)
    digest = hashlib.sha256()

    def once(turn: int) -> float:
        if test.kind == "pp":
            return session.prefill(test.tokens, turn)
        seconds, tokens = session.decode(test.tokens, test.context, turn)
        digest.update(np.array(tokens, np.uint32).tobytes())
        return seconds

    samples = _repeat(once, arguments.repeats)
    known = {"digest": digest.hexdigest()[:16]} if test.kind == "tg" else {}
    return {"seconds": samples, "about": session.description, **known}


def _transformers(arguments: argparse.Namespace, test: Test) -> dict[str, Any]:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(arguments.threads)
    model = AutoModelForCausalLM.from_pretrained(
        arguments.model, dtype=torch.bfloat16, experts_implementation="grouped_mm"
    ).eval()
    vocab = model.lm_head.weight.shape[0]

    def forward(ids: Any, cache: Any) -> tuple[Any, Any]:
        found = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return found.logits[:, -1:].argmax(-1), found.past_key_values

    def once(turn: int) -> float:
        prompt = test.tokens if test.kind == "pp" else max(test.context, 1)
        ids = torch.from_numpy(synthetic_ids(prompt, vocab, turn).astype(np.int64))[None]
        state: list[Any] = []
        prefill = timed(lambda: state.extend(forward(ids, None)))
        if test.kind == "pp":
            return prefill

        def steps() -> None:
            for _ in range(test.tokens):
                state[:] = forward(*state)

        return timed(steps)

    with torch.inference_mode():
        samples = _repeat(once, arguments.repeats)
    return {"seconds": samples, "about": f"torch {torch.__version__}, bf16, grouped_mm"}


def _mlx(arguments: argparse.Namespace, test: Test) -> dict[str, Any]:
    import mlx.core as mx
    from mlx_lm.utils import load_model

    model, config = load_model(Path(arguments.model))
    vocab = config.get("text_config", config)["vocab_size"]

    def forward(ids: Any, cache: Any) -> Any:
        token = model(ids[None], cache=cache)[0, -1:].argmax(-1)
        mx.eval(token)
        return token

    def once(turn: int) -> float:
        prompt = test.tokens if test.kind == "pp" else max(test.context, 1)
        ids, cache = mx.array(synthetic_ids(prompt, vocab, turn)), model.make_cache()
        tokens: list[Any] = []
        prefill = timed(lambda: tokens.append(forward(ids, cache)))
        if test.kind == "pp":
            return prefill

        def steps() -> None:
            for _ in range(test.tokens):
                tokens[0] = forward(tokens[0], cache)

        return timed(steps)

    samples = _repeat(once, arguments.repeats)
    return {"seconds": samples, "about": f"mlx {version('mlx')}, {mx.default_device()}, as stored"}


def _load(arguments: argparse.Namespace, test: Test | None) -> dict[str, Any]:
    """Load a model, and say what that cost; with a test, also what its first run costs."""
    import resource

    from lily import _native

    def mark() -> dict[str, int]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            **machine.resident_bytes(),
            "major_faults": usage.ru_majflt,
            "read_blocks": usage.ru_inblock,  # of 512 bytes, from the disk
        }

    before, engines = mark(), []
    seconds = timed(
        lambda: engines.append(
            _native.Engine(
                arguments.model,
                max_context=arguments.context,
                cache_bytes=0,
                # The plan would refuse a model larger than the machine, though nothing reads it.
                memory_limit_bytes=1 << 40,
                threads=arguments.threads,
            )
        )
    )
    found: dict[str, Any] = {"seconds": [seconds], "before": before, "after": mark()}
    found |= {"about": engines[0].device_description, "plan": engines[0].plan()}
    if test:
        session = engines[0].session()
        ids = synthetic_ids(test.tokens, engines[0].vocab_size)
        found["first_prefill_s"] = timed(lambda: session.prefill(ids))
        found["after_prefill"] = mark()
    return found


def _repeat(once: Callable[[int], float], repeats: int) -> list[float]:
    return [once(turn) for turn in range(repeats + 1)][1:]


ENGINES = {"lily": _lily, "transformers": _transformers, "mlx": _mlx}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench worker``."""
    parser.add_argument("engine", choices=(*ENGINES, "load"))
    parser.add_argument("model", help="checkpoint folder")
    parser.add_argument("test", nargs="?", help="pp512, tg64, tg64@512; load needs none")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--context", type=int, default=4096)


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    test = Test.parse(arguments.test) if arguments.test else None
    if arguments.engine == "load":
        found = _load(arguments, test)
    elif test:
        found = ENGINES[arguments.engine](arguments, test)
    else:
        raise ValueError(f"engine '{arguments.engine}' needs a test")
    print(json.dumps(found))
