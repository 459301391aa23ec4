"""How fast the main kernels are, and the memory under them.

Each kernel is recorded many times into one step, over so many copies of its weights that no cache
serves it. Knows no kernel by name.
"""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lily._native import kernels as native
from lily.doctor.check import Check
from lily.doctor.tensors import Place

_ROTATION_BYTES = 400_000_000  # larger than any chip's cache
_MOST_CALLS = 24
_RUNS = 5
_COPIED_BYTES = 1 << 28


def measure(check: Check, device: native.Device) -> dict[str, Any]:
    """Microseconds of one run, and its rate: of bytes, or of operations where it has any."""
    prepared = check.prepared()
    wanted = min(_ROTATION_BYTES // check.moved_bytes + 1, _MOST_CALLS)
    calls = 4 if check.flops else max(wanted, 2)
    # A layer's experts are many sets of weights already; others are copied.
    turns = min(calls, prepared.turns)
    step = native.Step(device)
    for _ in range(-(-calls // turns)):
        place = Place(device, device.activation_dtype)
        for turn in range(turns):
            prepared.record(place, step, turn)
    recorded = -(-calls // turns) * turns
    samples = [us / recorded for us in device.time_us(step, _RUNS)]
    median = statistics.median(samples)
    found: dict[str, Any] = {"us": median, "us_min": min(samples), "us_max": max(samples)}
    if check.flops:
        found["gflop_per_s"] = check.flops / median / 1e3
    else:
        found["gb_per_s"] = check.moved_bytes / median / 1e3
    return found


def copy_gb_per_s() -> float:
    """What all processors together copy, read and written: the best of a few rounds."""
    count = os.cpu_count() or 1
    source = np.ones(_COPIED_BYTES // 8)
    target = np.zeros_like(source)
    parts = list(zip(np.array_split(target, count), np.array_split(source, count), strict=True))
    best = float("inf")
    with ThreadPoolExecutor(count) as pool:
        for _ in range(_RUNS):
            begin = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(*pair), parts))
            best = min(best, time.perf_counter() - begin)
    return 2 * _COPIED_BYTES / best / 1e9
