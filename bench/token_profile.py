"""Where each microsecond of a decode token and of a short prefill goes on a GPU, by kernel.

The step runs twice, in processes of their own (`bench.profiled`): as it does in use, by the clock,
and under Nsight Compute, which runs every kernel alone and counts what it moves. In use a kernel
begins before the one before it has ended, so that the sum of the single times is not the step's
time: both stand in the result. Knows no kernel; `bench.token_bytes` says what each must move.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from bench import machine, ncu, token_table
from bench.harness import Report, Summary
from bench.shapes import MODELS
from bench.token_bytes import Stage, assign, decode_stages, prefill_stages

_NOTES = (
    "alone: each kernel by itself under Nsight Compute, clocks and caches as they are; short ones "
    "take about 2 to 3 us more than in a chain, where one begins while the one before it ends.",
    "in use: the replayed graph by the host's clock, with what the host does between two steps.",
    "must move: weights, cache and state that the mathematics needs; of a prefill weights alone. "
    "DRAM: what went past the caches, which is less where a kernel reads what one has just "
    "written. GB/s: of the former, or of the latter where nothing must move.",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench token``."""
    parser.add_argument("--model", required=True, help="folder of make-full")
    parser.add_argument("--shapes", default="real", choices=MODELS, help="of that folder")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--contexts", default="256,131072", help="tokens before a decode step")
    parser.add_argument("--prefill", default="256", help="tokens of prompts; empty: none")
    parser.add_argument("--samples", type=int, default=5, help="of the time in use")
    parser.add_argument("--limit", type=float, default=120, help="seconds of a single process")
    parser.add_argument("--logs", type=Path, help="keep Nsight Compute's tables in this folder")
    parser.add_argument("--name", default="token", help="of the file in bench/results")


def run(arguments: argparse.Namespace) -> None:
    """Measure, shortest first, and write the result file; what fails is left out, with a note."""
    report = Report("token", {"samples": arguments.samples, "shapes": arguments.shapes})
    for note in _NOTES:
        report.note(note)
    report.extra["limits"] = _limits(report, arguments.device)
    points: list[dict[str, Any]] = []
    report.extra["points"] = points
    options = {"decode": arguments.contexts, "prefill": arguments.prefill}
    wanted = [(int(n), phase) for phase, text in options.items() for n in text.split(",") if n]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            probe = _Probe(report, arguments, Path(arguments.logs or scratch))
            for tokens, phase in sorted(wanted):
                try:
                    points.append(probe.point(phase, tokens))
                except (OSError, RuntimeError, ValueError) as error:
                    report.note(f"{phase} at {tokens:,}: {error}")
    except KeyboardInterrupt:  # time is up
        report.note("interrupted: points are missing")
    document = {"figures": report.figures, **report.extra}
    print("\n".join(token_table.lines(document)))
    report.write(arguments.name)


def _limits(report: Report, device: str) -> dict[str, Any]:
    try:
        from bench.gpu_torch import Lab

        lab = Lab(device, device == "cpu")
        lab.measure_limits()
    except Exception as error:  # PyTorch is not there, or fails: the times count all the same
        report.note(f"no limit of the bandwidth: {type(error).__name__}: {error}")
        return {}
    return lab.limits()


class _Probe:
    def __init__(self, report: Report, arguments: argparse.Namespace, logs: Path) -> None:
        self._report, self._arguments, self._logs = report, arguments, logs
        self._metrics = ncu.ALL
        logs.mkdir(parents=True, exist_ok=True)

    def point(self, phase: str, tokens: int) -> dict[str, Any]:
        """One step in use and under the profiler."""
        option = "--context" if phase == "decode" else "--prefill"
        program = [sys.executable, "-m", "bench", "profiled"]
        program += [os.path.abspath(self._arguments.model), option, str(tokens)]
        program += ["--device", self._arguments.device]
        said = self._call([*program, "--samples", str(self._arguments.samples)])
        found = json.loads([line for line in said.splitlines() if line.startswith("{")][-1])
        self._report.extra["device"] = found["about"]
        summary = Summary(tuple(second * 1e6 for second in found["seconds"]))
        self._report.add({"phase": phase, "tokens": tokens}, "us", summary)
        launches = self._profile(program, self._logs / f"{phase}_{tokens}.csv")
        point = {"phase": phase, "tokens": tokens, "in_use_us": round(summary.median, 2)}
        shape, stages = MODELS[self._arguments.shapes], []
        try:
            known = decode_stages(shape, tokens) if phase == "decode" else prefill_stages(shape)
            stages = assign([launch.kernel for launch in launches], known)
        except (KeyError, ValueError) as error:  # operations that are new here
            self._report.note(f"{phase} at {tokens:,}: what must move is not known: {error}")
        return point | summarise(launches, stages, self._report.extra["limits"])

    def _profile(self, program: list[str], log: Path) -> list[ncu.Launch]:
        """With all metrics, or with the few that are needed where those fail."""
        while True:
            log.unlink(missing_ok=True)
            try:
                self._call(ncu.command(self._metrics, log, program))
                return ncu.parse(log.read_text("utf-8"))
            except (OSError, RuntimeError, ValueError) as error:
                if self._metrics == ncu.NEEDED:
                    raise
                self._metrics = ncu.NEEDED
                self._report.note(f"with fewer counters, because of this: {error}")

    def _call(self, command: list[str]) -> str:
        """What a program prints; it and its children are ended where they take too long."""
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=machine.ROOT,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=self._arguments.limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            limit = f"{self._arguments.limit:.0f} s"
            raise RuntimeError(f"'{command[0]}' took more than its {limit}") from None
        if process.returncode:
            raise RuntimeError(
                f"'{Path(command[0]).name}' exited {process.returncode}: {said[-600:]}"
            )
        return said


def summarise(
    launches: Sequence[ncu.Launch], stages: Sequence[Stage], limits: dict[str, Any]
) -> dict[str, Any]:
    """Launches of one kernel, grid and part of the model as one row, the longest first."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, launch in enumerate(launches):
        part = stages[place].part if stages else ""
        groups.setdefault((part, launch.kernel, launch.grid, launch.block), []).append(place)
    rows = []
    for (part, kernel, grid, block), places in groups.items():
        of = [launches[place] for place in places]
        row: dict[str, Any] = {"kernel": kernel, "part": part, "grid": grid, "block": block}
        row["count"] = len(of)
        row["alone_us"] = round(sum(launch.microseconds for launch in of), 3)
        row["dram_bytes"] = round(sum(launch.dram_bytes for launch in of))
        if stages:
            row["moved_bytes"] = sum(stages[place].moved_bytes for place in places)
        for name, metric in (
            ("l2_bytes", ncu.L2),
            ("registers", ncu.REGISTERS),
            ("active_warps_percent", ncu.ACTIVE_WARPS),
        ):
            known = [launch.values[metric] for launch in of if metric in launch.values]
            if known:
                row[name] = round(sum(known)) if name == "l2_bytes" else round(fmean(known), 1)
        rows.append(_with_rate(row, limits))
    rows.sort(key=lambda row: -row["alone_us"])
    whole = {"kernels": len(launches), "rows": rows}
    for name in ("alone_us", "dram_bytes", "moved_bytes"):
        if all(name in row for row in rows):
            whole[name] = round(sum(row[name] for row in rows), 2)
    return _with_rate(whole, limits)


def _with_rate(row: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    """GB/s of what must move, or where that is nothing or not known of what moved; its share."""
    size = row.get("moved_bytes") or row["dram_bytes"]
    row["gb_per_s"] = round(size / row["alone_us"] / 1e3, 1)
    if limits:
        row["share"] = round(row["gb_per_s"] / limits["copy_gb_per_s"], 4)
    return row
