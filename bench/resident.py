"""An engine that stays loaded and runs lengths when asked, in a process of its own.

  python -m bench resident lily|mlx MODEL CONTEXT_TOKENS [--device NAME]

Reads lines "prompt_tokens decode_tokens prompt_number" and answers each with a line of JSON:
seconds of prefill and of decode, and the greedy tokens' digest. `bench/llama_resident.cpp` speaks
the same. `Resident` below is the other end of the pipe.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import timed
from bench.machine import ROOT
from bench.worker import LilySession, synthetic_ids

# Prompts longer than this are not run through mlx-lm where it loops over tokens: minutes each.
MLX_LONGEST_PREFILL = 2048


class Resident:
    """A resident engine's process, seen from the measuring one."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=ROOT
        )
        self.about = self._read(900)

    def run(self, prompt: int, decode: int, number: int, limit_s: float) -> dict[str, Any]:
        """One prompt; raises RuntimeError where the engine fails or is silent too long."""
        assert self._process.stdin
        self._process.stdin.write(f"{prompt} {decode} {number}\n")
        self._process.stdin.flush()
        return self._read(limit_s)

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _read(self, limit_s: float) -> dict[str, Any]:
        watchdog = threading.Timer(limit_s, self._process.kill)
        watchdog.start()
        assert self._process.stdout
        line = self._process.stdout.readline()
        watchdog.cancel()
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"{self.name} ended with {code}, or was silent for {limit_s:.0f} s")
        found = json.loads(line)
        assert isinstance(found, dict)
        return found


class _Mlx:
    """mlx-lm on the same files. Its delta rule is a Metal kernel; elsewhere, a loop over tokens."""

    def __init__(self, model: str) -> None:
        import mlx.core as mx
        from mlx_lm.utils import load_model

        self._mx = mx
        self._model, config = load_model(Path(model))
        self._vocab = config.get("text_config", config)["vocab_size"]
        self._config = config.get("text_config", config)
        self.about = {"about": f"mlx {mx.__version__}, {mx.default_device()}"}

    def run(self, prompt: int, decode: int, number: int) -> dict[str, Any]:
        """Prefill where it ends in time, else a cache full of noise; then greedy steps."""
        cache = self._model.make_cache()
        found: dict[str, Any] = {}
        ids = synthetic_ids(prompt, self._vocab, number)
        if prompt <= MLX_LONGEST_PREFILL:
            tokens: list[Any] = []
            found["prefill_s"] = timed(lambda: tokens.append(self._forward(ids, cache)))
            token = tokens[0]
        else:
            self._fill(cache, prompt)
            token = self._forward(ids[-1:], cache)

        def steps() -> None:
            nonlocal token
            for _ in range(decode):
                token = self._forward(token, cache)

        found["decode_s"] = timed(steps)
        return found

    def _forward(self, ids: Any, cache: Any) -> Any:
        mx = self._mx
        token = self._model(mx.array(ids)[None], cache=cache)[0, -1:].argmax(-1)
        mx.eval(token)
        return token

    def _fill(self, cache: Any, tokens: int) -> None:
        mx, config = self._mx, self._config
        shape = (1, config["num_key_value_heads"], tokens, config["head_dim"])
        for index, layer in enumerate(cache):
            if (index + 1) % config["full_attention_interval"] == 0:
                layer.state = [mx.random.normal(shape).astype(mx.bfloat16) for _ in range(2)]
                mx.eval(layer.state)


class _Lily:
    def __init__(self, model: str, context: int, device: str) -> None:
        self._session = LilySession(model, threads=0, context=context, device=device)
        self.about = {"about": self._session.description, "plan": self._session.plan()}

    def run(self, prompt: int, decode: int, number: int) -> dict[str, Any]:
        """Prefill until the first token is known, then greedy steps."""
        prefill, seconds, tokens = self._session.generate(prompt, decode, number)
        digest = hashlib.sha256(np.array(tokens, np.uint32).tobytes()).hexdigest()[:16]
        return {"prefill_s": prefill, "decode_s": seconds, "digest": digest}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench resident``."""
    parser.add_argument("engine", choices=("lily", "mlx"))
    parser.add_argument("model")
    parser.add_argument("context", type=int, help="tokens that the context must hold")
    parser.add_argument("--device", default="auto")


def run(arguments: argparse.Namespace) -> None:
    """Answer lines until the input ends."""
    engine: _Lily | _Mlx
    if arguments.engine == "lily":
        engine = _Lily(arguments.model, arguments.context, arguments.device)
    else:
        engine = _Mlx(arguments.model)
    print(json.dumps(engine.about), flush=True)
    for line in sys.stdin:
        prompt, decode, number = map(int, line.split())
        print(json.dumps(engine.run(prompt, decode, number)), flush=True)
