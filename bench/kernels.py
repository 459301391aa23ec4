"""Single kernels: time, and share of this machine's own bandwidth or arithmetic.

Each case is recorded many times into one step, every time on other weights, until the step has
passed over more memory than the last-level cache holds; the figure is the step's time divided by
its calls. Instruction sets and thread counts are arms that take turns on the same step.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lily._native import kernels as native

from bench import machine
from bench.ceilings import Ceilings
from bench.harness import Report, Summary, interleave, timed
from bench.kernel_cases import Case, decode_cases
from bench.kernel_memory import Memory, row_bytes
from bench.prefill_cases import SCORED, TOKENS, prefill_cases
from bench.shapes import MODELS, ModelShape

_FALLBACK_CACHE = 64 << 20  # where the system does not tell the size of its last-level cache
_MOST_CALLS = 4096
_STEP_FLOPS = 10e9  # arithmetic that is long enough to time, also on one fast thread
_TINY_ROTATION = 16 << 20  # the whole model is about this large: a cache holds it in real life too


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench kernels``."""
    parser.add_argument("--model", default="mid", help=f"of {', '.join(MODELS)}; comma-separated")
    parser.add_argument("--phase", choices=("decode", "prefill", "both"), default="both")
    parser.add_argument("--storage", default="q4", choices=("q4", "q8", "bf16", "f32"))
    parser.add_argument("--isa", default="best", help="best, all, or names; comma-separated")
    parser.add_argument("--threads", default="all", help="numbers, comma-separated; all: all cores")
    parser.add_argument("--only", default="", help="regular expression over 'family_kernel shape'")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--name", default="kernels", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Measure and write the result file."""
    models = arguments.model.split(",")
    unknown = [name for name in models if name not in MODELS]
    if unknown:
        raise ValueError(f"model '{unknown[0]}' is not one of {', '.join(MODELS)}")
    all_isas = native.isas()
    isas = {"best": all_isas[:1], "all": all_isas}.get(arguments.isa, arguments.isa.split(","))
    cores = machine.usable_cores()
    threads = [cores if t == "all" else int(t) for t in arguments.threads.split(",")]
    rotation, cold = _rotation_bytes()
    settings = {
        "models": models,
        "storage": arguments.storage,
        "rounds": arguments.rounds,
        "rotation_bytes": rotation,
    }
    report = Report("kernels", settings)
    if not cold:
        report.note("memory is too small to rotate past the last-level cache: figures are warm")
    ceilings = _open_ceilings(report, rotation)
    devices = {(isa, t): native.Device("cpu", threads=t, isa=isa) for isa in isas for t in threads}
    bench = _Bench(report, ceilings, devices, arguments.rounds)
    for model in models:
        if ceilings:
            ceilings.measure(threads)
        resident = model == "tiny"
        bench.measure_model(
            model,
            _cases(MODELS[model], arguments, rotation),
            _TINY_ROTATION if resident else rotation,
            cold and not resident,
        )
    if ceilings:
        ceilings.measure(threads)
        report.extra["ceilings"] = ceilings.as_dict()
    bench.write_figures()
    report.write(arguments.name)


def _open_ceilings(report: Report, rotation: int) -> Ceilings | None:
    try:
        return Ceilings(megabytes=rotation >> 20)
    except (OSError, RuntimeError) as error:
        report.note(f"no limits of the machine, so no shares: {error}")
        return None


def _rotation_bytes() -> tuple[int, bool]:
    """Bytes to pass over before any is read again, and whether that is past every cache."""
    wanted = 2 * (machine.last_level_cache_bytes() or _FALLBACK_CACHE)
    # Pools of codes, factors, bf16 and fp32 may all be alive, each a quarter larger than this.
    affordable = machine.available_memory_bytes() // 6
    return max(min(wanted, affordable), 64 << 20), wanted <= affordable


def _cases(shape: ModelShape, arguments: argparse.Namespace, rotation: int) -> Iterator[Case]:
    # A pool must hold the largest single tensor, whatever the cache: the table, a layer's experts,
    # or what a prefill writes.
    row = row_bytes(arguments.storage, shape.hidden, factors=False)
    rows = max(shape.vocab, shape.experts * shape.width)
    largest = max(rows * row, 4 * SCORED * shape.vocab, 4 * TOKENS[-1] * shape.slots * shape.hidden)
    memory = Memory(native.Device("cpu"), max(rotation + rotation // 4, largest))
    pattern = re.compile(arguments.only)
    makers = {"decode": decode_cases, "prefill": prefill_cases}
    for phase, make in makers.items():
        if arguments.phase not in (phase, "both"):
            continue
        for case in make(memory, shape, arguments.storage):
            if pattern.search(f"{case.family}_{case.kernel} {case.shape}"):
                yield case


@dataclass(frozen=True)
class _Timed:
    """What is left of a case once it was timed."""

    labels: dict[str, Any]
    bound: str
    moved_bytes: int
    flops: int
    cold: bool
    summary: Summary


class _Bench:
    def __init__(
        self,
        report: Report,
        ceilings: Ceilings | None,
        devices: dict[tuple[str, int], native.Device],
        rounds: int,
    ) -> None:
        self._report, self._ceilings = report, ceilings
        self._devices, self._rounds = devices, rounds
        # Kept until the ceilings are known to their last round.
        self._pending: list[_Timed] = []

    def measure_model(self, model: str, cases: Iterator[Case], rotation: int, cold: bool) -> None:
        """All cases of one model."""
        for case in cases:
            step = native.Step()
            calls = _calls(case, rotation)
            for _ in range(calls):
                case.record(step)
            arms = {
                f"{isa},{threads}": _arm(device, step, calls)
                for (isa, threads), device in self._devices.items()
            }
            found = interleave(arms, rounds=self._rounds)
            for (isa, threads), summary in zip(self._devices, found.values(), strict=True):
                labels = {
                    "model": model,
                    "kernel": f"{case.family}_{case.kernel}",
                    "shape": case.shape,
                    "isa": isa,
                    "threads": threads,
                }
                reached = cold and calls * case.moved_bytes >= rotation
                # Not the case itself: it keeps the model's memory alive.
                work = (case.bound, case.moved_bytes, case.flops)
                self._pending.append(_Timed(labels, *work, reached, summary))
                print(" ".join(map(str, labels.values())), f"{summary} us", flush=True)

    def write_figures(self) -> None:
        """Into the report, against the ceilings."""
        for timing in self._pending:
            self._report.add(timing.labels, "us", timing.summary, **self._derived(timing))

    def _derived(self, timing: _Timed) -> dict[str, Any]:
        seconds = timing.summary.median * 1e-6
        derived: dict[str, Any] = {"bound": timing.bound}
        limits = self._ceilings.limits(timing.labels["threads"]) if self._ceilings else {}
        if timing.bound != "latency":
            derived["gb_per_s"] = round(timing.moved_bytes / seconds / 1e9, 3)
        if timing.bound == "compute":
            derived["gflop_per_s"] = round(timing.flops / seconds / 1e9, 2)
            if peak := limits.get("fma_gflop_per_s"):
                derived["share_of_fma_peak"] = round(derived["gflop_per_s"] / peak, 4)
        if timing.bound == "memory":
            derived["cold"] = timing.cold
            peak = limits.get("read_gb_per_s")
            if peak and timing.cold:  # a cache's speed is no share of the memory's
                derived["share_of_read_bandwidth"] = round(derived["gb_per_s"] / peak, 4)
        return derived


def _calls(case: Case, rotation: int) -> int:
    wanted = _STEP_FLOPS / case.flops if case.flops else rotation / case.moved_bytes
    return int(min(max(wanted + 1, 2), _MOST_CALLS))


def _arm(device: native.Device, step: native.Step, calls: int) -> Any:
    return lambda: timed(lambda: device.run(step)) / calls * 1e6
