"""How every figure is taken: warm-up, arms in turn, medians with their spread, and one JSON file.

A figure whose samples vary by more than 5 % is kept, but marked as not steady, and no table shows
it without the mark; a run beside other busy processes is marked as a whole. This file knows no
kernel, no engine and no peer.
"""

from __future__ import annotations

import json
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import machine
from bench.machine import CpuTime

STEADY_CV = 0.05
QUIET_SHARE = 0.05  # of processor time that others may take
RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Summary:
    """Samples of one quantity, in its unit."""

    samples: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples or not all(sample > 0 for sample in self.samples):
            raise ValueError(f"a measurement gave {self.samples}, expected positive numbers")

    @property
    def median(self) -> float:
        """The figure."""
        return statistics.median(self.samples)

    @property
    def cv(self) -> float:
        """Standard deviation as a share of the mean; infinite for a single sample."""
        if len(self.samples) < 2:
            return float("inf")
        return statistics.stdev(self.samples) / statistics.fmean(self.samples)

    @property
    def steady(self) -> bool:
        """Whether the figure may be quoted."""
        return self.cv <= STEADY_CV

    def as_dict(self) -> dict[str, Any]:
        """For the result file."""
        single = len(self.samples) < 2
        return {
            "median": _rounded(self.median),
            "min": _rounded(min(self.samples)),
            "max": _rounded(max(self.samples)),
            "cv": None if single else round(self.cv, 4),
            "steady": self.steady,
            "samples": [_rounded(sample) for sample in self.samples],
        }

    def __str__(self) -> str:
        spread = "one sample" if len(self.samples) < 2 else f"±{self.cv:.1%}"
        mark = "" if self.steady else ", NOT STEADY"
        return f"{self.median:,.4g} ({min(self.samples):,.4g} to {max(self.samples):,.4g}, " + (
            f"{spread}{mark})"
        )


def interleave(
    arms: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    warm_ups: int = 1,
    pause_s: float = 0.0,
) -> dict[str, Summary]:
    """Call every arm `rounds` times, A B A B, after `warm_ups` rounds that do not count.

    An arm returns its own measurement, so that it may prepare outside of what it times.
    """
    samples: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(warm_ups + rounds):
        for name, measure in arms.items():
            value = measure()
            if turn >= warm_ups:
                samples[name].append(value)
            if pause_s:
                time.sleep(pause_s)
    return {name: Summary(tuple(values)) for name, values in samples.items()}


def timed(call: Callable[[], object]) -> float:
    """Seconds that the call took."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@dataclass
class Report:
    """Everything that one run of a benchmark found out."""

    bench: str
    settings: dict[str, Any]
    machine: dict[str, object] = field(default_factory=machine.facts)
    began: CpuTime = field(default_factory=CpuTime.now)
    figures: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def add(
        self, labels: dict[str, Any], unit: str, summary: Summary, **derived: Any
    ) -> dict[str, Any]:
        """Record a figure and print it."""
        figure = {**labels, "unit": unit, **summary.as_dict(), **derived}
        self.figures.append(figure)
        shown = " ".join(str(value) for value in labels.values())
        more = ", ".join(f"{key} {_short(value)}" for key, value in derived.items())
        print(f"{shown}: {summary} {unit}" + (f"; {more}" if more else ""), flush=True)
        return figure

    def note(self, text: str) -> None:
        """Say something that a reader of the figures must know."""
        if text not in self.notes:
            self.notes.append(text)
            print(f"note: {text}", flush=True)

    def write(self, name: str) -> Path:
        """Write bench/results/<name>.json."""
        unsteady = sum(not figure["steady"] for figure in self.figures)
        if unsteady:
            which = f"{unsteady} of {len(self.figures)} figures"
            self.note(f"{which} vary by more than 5 % or have one sample")
        foreign = self.began.foreign_share()
        quiet = foreign is not None and foreign <= QUIET_SHARE
        if not quiet:
            share = "an unknown share" if foreign is None else f"{foreign:.0%}"
            self.note(f"other processes took {share} of the machine's time: not to be quoted")
        document = {
            "bench": self.bench,
            "command": shown_command(),
            "machine": {
                **self.machine,
                "load_average_at_end": machine.load_average(),
                "foreign_cpu_share": foreign,
            },
            "quiet": quiet,
            "settings": self.settings,
            **self.extra,
            "notes": self.notes,
            "figures": self.figures,
        }
        return write_document(name, document)


def write_document(name: str, document: dict[str, Any]) -> Path:
    """Write bench/results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(_dump(document) + "\n", encoding="utf-8")
    print(f"wrote bench/results/{path.name}")
    return path


def shown_command() -> str:
    """The command line, with folders of this machine cut from the paths."""
    return shlex.join(["python", "-m", "bench", *map(_without_folders, sys.argv[1:])])


def _without_folders(word: str) -> str:
    option, equals, value = word.rpartition("=")
    if value.startswith(("/", "~", ".")) or ("/" in value and Path(value).exists()):
        value = Path(value).name or value
    return option + equals + value


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _short(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _dump(document: dict[str, Any]) -> str:
    # Lists of numbers stay on one line: a result file is read by people as well.
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    numbers = re.compile(r"\[\n\s+(-?[\d.e+-]+(?:,\n\s+-?[\d.e+-]+)*)\n\s+\]")
    return numbers.sub(lambda found: "[" + re.sub(r",\n\s+", ", ", found[1]) + "]", text)
