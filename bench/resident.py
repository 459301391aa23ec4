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
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from bench.machine import ROOT
from bench.worker import LilySession, synthetic_ids

# Prompts longer than this are not run through mlx-lm where it loops over tokens: minutes each.
MLX_LONGEST_PREFILL = 2048


class Resident:
    """A resident engine's process, seen from the measuring one.

    Raises RuntimeError where the engine does not start, fails, or is silent too long.
    """

    def __init__(self, name: str, command: list[str], limit_s: float) -> None:
        self.name = name
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                cwd=ROOT,
            )
        except OSError as error:
            raise RuntimeError(f"{name} does not start: {error}") from error
        self.about = self._read(limit_s)

    def run(self, prompt: int, decode: int, number: int, limit_s: float) -> dict[str, Any]:
        """One prompt."""
        assert self._process.stdin
        try:
            self._process.stdin.write(f"{prompt} {decode} {number}\n")
            self._process.stdin.flush()
        except OSError as error:
            raise RuntimeError(f"{self.name} has ended: {error}") from error
        return self._read(limit_s)

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
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            self.close()
            raise RuntimeError(f"{self.name} said {line[:200]!r}, expected a line of JSON")
        return found


class _Mlx:
    """mlx-lm on the same files. Its delta rule is a Metal kernel; elsewhere, a loop over tokens."""

    def __init__(self, model: str) -> None:
        from lily.versus.child import MlxLm

        config = json.loads((Path(model) / "config.json").read_text("utf-8"))
        self._config = config.get("text_config", config)
        self._engine = MlxLm(model, "", 0)
        self.about = {"about": self._engine.about}

    def run(self, prompt: int, decode: int, number: int) -> dict[str, Any]:
        """Prefill where it ends in time, else a cache full of noise; then greedy steps."""
        ids = synthetic_ids(prompt, self._config["vocab_size"], number)
        if prompt <= MLX_LONGEST_PREFILL:
            prefill_s, decode_s, _ = self._engine.run(ids, decode)
            return {"prefill_s": prefill_s, "decode_s": decode_s}
        _, decode_s, _ = self._engine.run(ids[-1:], decode, self._noise(prompt - 1))
        return {"decode_s": decode_s}

    def _noise(self, tokens: int) -> list[Any]:
        import mlx.core as mx

        config, cache = self._config, self._engine.make_cache()
        shape = (1, config["num_key_value_heads"], tokens, config["head_dim"])
        for index, layer in enumerate(cache):
            if (index + 1) % config["full_attention_interval"] == 0:
                keys, values = (mx.random.normal(shape, dtype=mx.bfloat16) for _ in range(2))
                mx.eval(keys, values)
                layer.state = keys, values, tokens
        return cache


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
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints is not an answer
    engine: _Lily | _Mlx
    if arguments.engine == "lily":
        engine = _Lily(arguments.model, arguments.context, arguments.device)
    else:
        engine = _Mlx(arguments.model)
    print(json.dumps(engine.about), file=answers, flush=True)
    for line in sys.stdin:
        prompt, decode, number = map(int, line.split())
        print(json.dumps(engine.run(prompt, decode, number)), file=answers, flush=True)
