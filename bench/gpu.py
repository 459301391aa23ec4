"""Kernels on a GPU: time, share of its bandwidth or matrix rate, and PyTorch doing the same work.

Each kernel is recorded many times into one step, every time on other weights, which is replayed
between two events of the device; PyTorch's calls take turns with it in the same run, as do the
probes of the limits. With --device cpu --small everything runs where there is no GPU, so that no
typing error waits for one; the figures then mean nothing.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from lily._native import kernels as native
from lily.errors import DeviceError

from bench import machine
from bench.harness import Report, interleave
from bench.kernel_cases import Case, decode_cases
from bench.kernel_memory import Memory, row_bytes
from bench.prefill_cases import SCORED, prefill_cases
from bench.shapes import REAL, TINY, ModelShape

CONTEXTS = (1024, 16_384, 131_072)
TOKENS = 4096
POSITIONS = (0, 12_288)  # of a chunk of TOKENS: the first 4K, and the last of 16K
_MOST_CALLS, _LEAST_CALLS = 400, 8  # of a kernel in a step
_RUNS = 3  # of a step in each turn


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench gpu``."""
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="tiny shapes, two rounds: a dry run")
    parser.add_argument("--storage", default="q4", choices=("q4", "q8", "bf16", "f32"))
    parser.add_argument("--phase", choices=("decode", "prefill", "both"), default="both")
    parser.add_argument("--only", default="", help="regular expression over 'family_kernel shape'")
    parser.add_argument("--no-peers", action="store_true", help="leave PyTorch's calls out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=400, help="begin no case after so many")
    parser.add_argument("--name", default="gpu_kernels", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Measure and write the result file."""
    from bench.gpu_torch import ROTATION_BYTES, Lab  # PyTorch is needed here alone

    rounds = 2 if arguments.small else arguments.rounds
    device = native.Device(arguments.device)
    lab = Lab(arguments.device, arguments.small)
    settings = {
        "storage": arguments.storage,
        "rounds": rounds,
        "runs_per_round": _RUNS,
        "rotation_bytes": ROTATION_BYTES,
        "small": arguments.small,
    }
    report = Report("gpu", settings)
    report.extra["device"] = device.description
    report.extra["driver"] = machine.ask_gpu("name,driver_version")
    lab.measure_limits()
    bench = _Bench(report, device, lab, rounds, 1 << 20 if arguments.small else ROTATION_BYTES)
    shape = TINY if arguments.small else REAL
    begin = time.perf_counter()
    for case in _cases(device, shape, arguments):
        if time.perf_counter() - begin > arguments.seconds:
            report.note(f"stopped after {arguments.seconds:.0f} s: cases are missing")
            break
        if not bench.measure(case, shape, with_peers=not arguments.no_peers):
            break
    if not bench.is_lost:
        try:
            lab.measure_limits()
        except RuntimeError as error:  # the figures so far count all the same
            report.note(f"the limits were not measured a second time: {error}")
    limits = lab.limits()
    report.extra["limits"] = limits
    bench.write_figures(limits)
    report.write(arguments.name)


def _cases(
    device: native.Device, shape: ModelShape, arguments: argparse.Namespace
) -> Iterator[Case]:
    tokens = 64 if arguments.small else TOKENS
    contexts = (64, 700) if arguments.small else CONTEXTS
    positions = (0, 70) if arguments.small else POSITIONS
    # A pool must hold the largest single tensor: the table, a layer's experts, a cache, or what a
    # prefill reads and writes.
    largest = max(
        max(shape.vocab, shape.experts * shape.width) * row_bytes(arguments.storage, shape.hidden),
        4 * SCORED * shape.vocab,
        4 * tokens * max(shape.slots * shape.hidden, shape.delta_columns, shape.attention_columns),
        2 * contexts[-1] * shape.kv_width,
    )
    memory = Memory(device, max((32 << 20) if arguments.small else (1 << 30), largest))
    pattern = re.compile(arguments.only)
    makers: dict[str, Callable[[], list[Case]]] = {
        "decode": lambda: decode_cases(memory, shape, arguments.storage, contexts),
        "prefill": lambda: prefill_cases(memory, shape, arguments.storage, [tokens], positions),
    }
    for phase, make in makers.items():
        if arguments.phase in (phase, "both"):
            for case in make():
                if pattern.search(f"{case.family}_{case.kernel} {case.shape}"):
                    yield case


class _Bench:
    def __init__(
        self, report: Report, device: native.Device, lab: Any, rounds: int, rotation: int
    ) -> None:
        self._report, self._device, self._lab = report, device, lab
        self._rounds, self._rotation = rounds, rotation
        self._pending: list[tuple[Case, dict[str, Any], dict[str, Any]]] = []
        self.is_lost = False

    def measure(self, case: Case, shape: ModelShape, *, with_peers: bool) -> bool:
        """Time a case and its peers; false when the device is lost, and nothing more can run."""
        name = f"{case.family}_{case.kernel} {case.shape}"
        step = native.Step(self._device)
        try:
            calls = self._calls(case)
            for _ in range(calls):
                case.record(step)
            arms = {"lily": self._lily_arm(step, calls)}
            if with_peers:
                arms |= self._peer_arms(shape, case, name)
            found = interleave(arms, rounds=self._rounds)
        except DeviceError as error:
            self._report.note(f"{name}: the device failed, and the run ends here: {error}")
            self.is_lost = True
            return False
        except Exception as error:  # one case must not cost the others their time on the machine
            self._report.note(f"{name}: left out: {type(error).__name__}: {error}")
            return True
        finally:
            self._lab.forget()
        for label, summary in found.items():
            print(f"{name} {label}: {summary} us", flush=True)
        labels = {"kernel": name, "launched": "+".join(dict.fromkeys(launched(step)))}
        self._pending.append((case, labels, found))
        return True

    def _calls(self, case: Case) -> int:
        wanted = _LEAST_CALLS if case.flops else self._rotation // case.moved_bytes + 1
        return max(min(wanted, _MOST_CALLS), _LEAST_CALLS)

    def _lily_arm(self, step: native.Step, calls: int) -> Callable[[], float]:
        return lambda: statistics.median(self._device.time_us(step, _RUNS)) / calls

    def _peer_arms(
        self, shape: ModelShape, case: Case, name: str
    ) -> dict[str, Callable[[], float]]:
        from bench.gpu_peers import peers

        arms = {}
        for peer in peers(self._lab, shape, case):
            try:
                call, copies = peer.make()
                arms[peer.label] = self._lab.arm(call, copies)
                arms[peer.label]()
            except Exception as error:  # a peer that does not run here must not end the run
                arms.pop(peer.label, None)
                first = str(error).strip().splitlines() or [""]
                self._report.note(f"{name}: no {peer.label}: {type(error).__name__}: {first[0]}")
        return arms

    def write_figures(self, limits: dict[str, Any]) -> None:
        """All figures, with shares of the limits and the peers' ratios, and a table of them."""
        rows = []
        for case, labels, found in self._pending:
            own = found["lily"].median
            for arm, summary in found.items():
                derived = _derived(case, summary.median, limits) if arm == "lily" else {}
                if arm != "lily":
                    derived["lily_is_faster_by"] = round(summary.median / own, 3)
                figure = self._report.add({**labels, "arm": arm}, "us", summary, **derived)
                rows.append(figure)
        print(_table(rows))


def launched(step: native.Step) -> list[str]:
    """The kernels that a step launches, in order."""
    lines = step.describe().splitlines()
    return [line.removeprefix("|").split()[0] for line in lines]


def _derived(case: Case, microseconds: float, limits: dict[str, Any]) -> dict[str, Any]:
    derived: dict[str, Any] = {"bound": case.bound, "moved_bytes": case.moved_bytes}
    seconds = microseconds * 1e-6
    if case.bound == "memory":
        derived["gb_per_s"] = round(case.moved_bytes / seconds / 1e9, 1)
        derived["share"] = round(derived["gb_per_s"] / limits["copy_gb_per_s"], 4)
    if case.bound == "compute":
        derived["flops"] = case.flops
        derived["tflop_per_s"] = round(case.flops / seconds / 1e12, 2)
        derived["share"] = round(derived["tflop_per_s"] / limits["bf16_matmul_tflop_per_s"], 4)
        if "mma_sync_tflop_per_s" in limits:
            share = derived["tflop_per_s"] / limits["mma_sync_tflop_per_s"]
            derived["mma_sync_share"] = round(share, 4)
    return derived


def _table(figures: list[dict[str, Any]]) -> str:
    lines = [
        "| kernel | arm | us | rate | share | of mma.sync | Lily faster by |",
        "|---|---|---|---|---|---|---|",
    ]
    for figure in figures:
        rate = ""
        if "gb_per_s" in figure:
            rate = f"{figure['gb_per_s']:,.0f} GB/s"
        elif "tflop_per_s" in figure:
            rate = f"{figure['tflop_per_s']:,.1f} TFLOP/s"
        share = f"{figure['share']:.0%}" if "share" in figure else ""
        mma = f"{figure['mma_sync_share']:.0%}" if "mma_sync_share" in figure else ""
        ratio = figure.get("lily_is_faster_by", "")
        mark = "" if figure["steady"] else " (!)"
        kernel = figure["kernel"].replace("|", "\\|")
        cells = [kernel, figure["arm"], f"{figure['median']:,.2f}{mark}", rate, share, mma]
        lines.append(f"| {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)
