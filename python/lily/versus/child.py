"""One engine, one length, one process: ``python -m lily.versus.child ENGINE MODEL DEVICE VOCAB``.

Answers the job "LENGTH TOKENS" as `lily.watch` asks it: loads, warms up at the exact shape, and
times a prefill up to the first token and the decode steps after it. The engines are imported only
here.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lily.machine import package_version

_HASH = 2_654_435_761
_FAR = 104_729  # places between two prompts in the sequence of ids
Sample = tuple[float, float, list[int]]  # seconds to the first token, seconds of the rest, tokens


def synthetic_ids(count: int, vocab: int, prompt: int = 0) -> NDArray[np.uint32]:
    """Ids ((i * 2654435761) mod 2^32) mod vocab; another prompt begins at another place."""
    places = np.arange(prompt * _FAR, prompt * _FAR + count, dtype=np.uint64)
    return (places * np.uint64(_HASH) % np.uint64(2**32) % np.uint64(vocab)).astype(np.uint32)


class Lily:
    """Lily's native session, without its prefix cache, which is another subject."""

    def __init__(self, model: str, device: str, context: int) -> None:
        from lily import _native

        self._engine = _native.Engine(model, device=device, max_context=context, cache_bytes=0)
        self._session = self._engine.session()
        self._session.set_sampler(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
        self.about = f"lily {package_version('lily-engine')}, {self._engine.device_description}"

    def run(self, ids: NDArray[np.uint32], tokens: int) -> Sample:
        """Greedy."""
        begin = time.perf_counter()
        reused = self._session.prefill(ids)
        found = [self._session.sampled().token_id]
        middle = time.perf_counter()
        for _ in range(tokens):
            found.append(self._session.step(found[-1]).token_id)
        end = time.perf_counter()
        if reused:
            raise RuntimeError(f"{reused} tokens of the prompt were reused, expected none")
        return middle - begin, end - middle, found


class MlxLm:
    """mlx-lm's own generation loop, as its command line runs it."""

    def __init__(self, model: str, device: str, context: int) -> None:
        import mlx.core as mx
        from mlx_lm.utils import load_model

        self._model, _ = load_model(Path(model))
        packages = ", ".join(f"{name} {package_version(name)}" for name in ("mlx-lm", "mlx"))
        self.about = f"{packages}, {mx.default_device()}"

    def make_cache(self) -> list[Any]:
        """An empty cache, a part for each layer."""
        found: list[Any] = self._model.make_cache()
        return found

    def run(self, ids: NDArray[np.uint32], tokens: int, cache: list[Any] | None = None) -> Sample:
        """Greedy, after what the cache holds.

        mlx-lm normalises the whole row of logits for every token, which is its way.
        """
        import mlx.core as mx
        from mlx_lm.generate import generate_step, generation_stream, wired_limit

        prompt = mx.array(ids)
        mx.eval(prompt)
        found: list[int] = []
        middle = 0.0
        stream: Any = generation_stream
        with wired_limit(self._model, [stream]):
            begin = time.perf_counter()
            steps = generate_step(prompt, self._model, max_tokens=tokens + 1, prompt_cache=cache)
            for token, _ in steps:
                middle = middle or time.perf_counter()
                found.append(int(token))
            end = time.perf_counter()
        return middle - begin, end - middle, found


ENGINES: dict[str, type[Lily] | type[MlxLm]] = {"lily": Lily, "mlx-lm": MlxLm}


def measure(
    engine: str, model: str, device: str, vocab: int, length: int, tokens: int
) -> dict[str, Any]:
    """Load, warm up on other ids of the same number, and time."""
    loaded = ENGINES[engine](model, device, length + tokens + 1)
    loaded.run(synthetic_ids(length, vocab, 1), tokens)
    prefill_s, decode_s, found = loaded.run(synthetic_ids(length, vocab, 0), tokens)
    digest = hashlib.sha256(np.array(found, np.uint32).tobytes()).hexdigest()[:16]
    return {
        "prefill_s": prefill_s,
        "decode_s": decode_s,
        "digest": digest,
        "greedy": found,
        "about": loaded.about,
    }


def main() -> None:
    """Answer one job after the other."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engines print is not an answer
    engine, model, device, vocab = sys.argv[1:]
    for line in sys.stdin:
        length, tokens = map(int, json.loads(line)["job"].split())
        try:
            found = measure(engine, model, device, int(vocab), length, tokens)
        except Exception as error:
            found = {"ok": False, "detail": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
