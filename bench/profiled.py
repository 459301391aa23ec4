"""One decode step, or one prefill, for a profiler to look at: the program of `bench token`.

  python -m bench profiled MODEL --context 4096            a step after 4,096 tokens
  python -m bench profiled MODEL --prefill 256             a prompt of 256 tokens

Everything before it (loading, a prompt of the same length, the context) happens outside of the
marks that a profiler waits for. With --samples N the same is timed instead, N times, as it runs in
use: a decode step is then the replay of a graph. Prints a line of JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lily import _native

from bench.worker import synthetic_ids

STEPS = 64  # of decode in a sample
_SETTLING_STEPS = 4  # launched one by one, captured, and replayed


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench profiled``."""
    parser.add_argument("model")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--context", type=int, help="decode after so many tokens")
    what.add_argument("--prefill", type=int, help="prefill so many tokens")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--samples", type=int, default=0, help="time instead, so many times")


def run(arguments: argparse.Namespace) -> None:
    """Do it, and print what was measured."""
    tokens = arguments.context or arguments.prefill
    most = tokens + _SETTLING_STEPS + STEPS * (arguments.samples + 1)
    engine = _native.Engine(
        arguments.model, device=arguments.device, max_context=most, cache_bytes=0
    )
    session = engine.session()
    session.set_sampler(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
    once = _prefill if arguments.prefill else _decode
    seconds = once(session, engine, tokens, arguments.samples)
    print(json.dumps({"about": engine.device_description, "seconds": seconds}), flush=True)


def _prefill(session: Any, engine: Any, tokens: int, samples: int) -> list[float]:
    def prompt(number: int) -> float:
        begin = time.perf_counter()
        session.prefill(synthetic_ids(tokens, engine.vocab_size, number))
        session.sampled()
        return time.perf_counter() - begin

    prompt(0)
    if samples:
        return [prompt(number) for number in range(1, samples + 1)]
    with _profiled(engine.device):
        prompt(1)
    return []


def _decode(session: Any, engine: Any, tokens: int, samples: int) -> list[float]:
    """Seconds of a step, a mean of STEPS of them."""
    session.prefill(synthetic_ids(tokens, engine.vocab_size))
    token = session.sampled().token_id
    if not samples:
        with _profiled(engine.device):  # the first step is no graph: a kernel is a launch
            session.step(token)
        return []
    for _ in range(_SETTLING_STEPS):
        token = session.step(token).token_id
    found = []
    for _ in range(samples):
        begin = time.perf_counter()
        for _ in range(STEPS):
            token = session.step(token).token_id
        found.append((time.perf_counter() - begin) / STEPS)
    return found


@contextmanager
def _profiled(device: str) -> Iterator[None]:
    """The driver's own marks, in the context that the engine has left current on this thread."""
    if device != "cuda":
        yield
        return
    driver = ctypes.CDLL("libcuda.so.1")
    if code := driver.cuProfilerStart():
        raise RuntimeError(f"cuProfilerStart gave {code}")
    yield
    driver.cuProfilerStop()
