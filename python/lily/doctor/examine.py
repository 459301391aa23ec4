"""The examination: which devices are there, every check on each, then the figures.

Owns the order of things, the time limits, and what is kept as a finding. Runs everything in
children and never imports the native module, so that it survives one that does not load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lily import machine
from lily.errors import InvalidInput
from lily.watch import Result, run_jobs

DEVICES = ("metal", "cuda", "cpu", "fibers")  # fibers: the Metal kernels on this CPU, for tests

# Seconds for a job, by its first word. A GPU may compile all its kernels when it is opened.
_LIMITS_S = {"open": 180.0, "greedy": 120.0}
_LIMIT_S = 60.0
GREEDY = "the model in the package"

Command = Callable[[str, str, bool], Sequence[str]]
Progress = Callable[[str], None]
Limit = Callable[[str], float]


@dataclass(frozen=True)
class DeviceState:
    """Whether a device is there; why it is not, where it is not."""

    name: str
    there: bool
    description: str = ""
    activation: str = ""
    memory_bytes: int = 0  # what it could hold in all
    why: str = ""
    facts: Mapping[str, str] = field(
        default_factory=dict
    )  # what is enabled on it, in its own words


@dataclass(frozen=True)
class Finding:
    """What one check on one device came to.

    `result` is "ok", "wrong", "error", "hung", "crashed", or "skipped". `share` is the worst error
    as a share of what is allowed.
    """

    device: str
    kernel: str
    model: str
    shape: str
    result: str
    detail: str = ""
    launched: str = ""
    share: float | None = None
    seconds: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Whether this speaks against the device."""
        return self.result not in ("ok", "skipped")


@dataclass(frozen=True)
class Figure:
    """How fast one kernel is on a device."""

    device: str
    kernel: str
    shape: str
    us: float
    gb_per_s: float | None = None
    gflop_per_s: float | None = None


@dataclass
class Examination:
    """Everything that was found out."""

    machine: dict[str, Any]
    quick: bool
    asked: str
    devices: list[DeviceState] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    copy_gb_per_s: float | None = None

    def of(self, device: str) -> list[Finding]:
        """The findings of one device."""
        return [finding for finding in self.findings if finding.device == device]

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def limit_s(job: str) -> float:
    """How long a job may take on the slowest machine that is still all right."""
    return _LIMITS_S.get(job.partition(" ")[0], _LIMIT_S)


def child_command(device: str, reference: str, quick: bool) -> Sequence[str]:
    """A fresh interpreter that answers jobs."""
    words = [device, reference, *(["quick"] if quick else [])]
    return [sys.executable, "-m", "lily.doctor.child", *words]


def examine(
    asked: str = "auto",
    *,
    quick: bool = False,
    progress: Progress = lambda _: None,
    command: Command = child_command,
    limit: Limit = limit_s,
) -> Examination:
    """Examine `asked`, or with "auto" every device that is there.

    Raises InvalidInput for a name that is none.
    """
    if asked not in ("auto", *DEVICES):
        raise InvalidInput(f"device '{asked}' is not known; expected auto, metal, cuda or cpu")
    found = Examination(machine.facts(), quick, asked)
    if machine.is_translated():
        found.remarks.append(
            "this Python is an Intel build that Rosetta translates; install an arm64 Python"
        )
    found.remarks += machine.unfit_to_measure()
    _survey(found, command, limit)
    there = [state.name for state in found.devices if state.there]
    wanted = [name for name in there if asked in ("auto", name)]
    if wanted and "cpu" in there:  # a device is as right as what it is compared with, so that first
        wanted = ["cpu", *(name for name in wanted if name != "cpu")]
    for name in wanted:
        _Patient(found, name, command, progress, limit).examine()
    return found


def _survey(found: Examination, command: Command, limit: Limit) -> None:
    names = [name for name in DEVICES if name != "fibers" or found.asked == "fibers"]
    jobs = [f"open {name}" for name in names]
    results = run_jobs(
        command("cpu", "numpy", found.quick),
        jobs,
        limit_s=limit,
        most_lost=len(jobs),
    )
    for name, result in zip(names, results, strict=True):
        data = result.data
        if result.status == "done" and data.get("there"):
            state = DeviceState(
                name,
                True,
                data["description"],
                data["activation"],
                data["memory_bytes"],
                facts=data["facts"],
            )
        else:
            why = data.get("why") or data.get("detail") or f"{result.status}: {result.detail}"
            state = DeviceState(name, False, why=why)
            if name == "cpu" or result.status != "done":
                kind = "error" if result.status == "done" else result.status
                found.findings.append(Finding(name, "open", "", "", kind, why))
        found.devices.append(state)


class _Patient:
    """One device under examination."""

    def __init__(
        self,
        found: Examination,
        name: str,
        command: Command,
        progress: Progress,
        limit: Limit,
    ) -> None:
        self._found, self._name, self._progress = found, name, progress
        # On a Mac there is one instruction set, and two builds of one source share its mistakes.
        reference = "numpy" if name == "cpu" else "cpu"
        self._command = command(name, reference, found.quick)
        self._limit = limit

    def examine(self) -> None:
        """All checks, then the figures of what is right."""
        (listed,) = self._run(["list"])
        if listed.status != "done" or "checks" not in listed.data:
            why = listed.detail or str(listed.data.get("detail", ""))
            why = f"the checks do not load: {why}"
            self._found.findings.append(Finding(self._name, "list", "", "", "error", why))
            return
        jobs = [*(f"check {name}" for name in listed.data["checks"]), "greedy"]
        for result in self._run(jobs):
            self._found.findings.append(self._finding(result))
        bad = {f"{f.kernel} [{f.model}: {f.shape}]" for f in self._found.of(self._name) if f.is_bad}
        self._measure([name for name in listed.data["timed"] if name not in bad])

    def _measure(self, names: Sequence[str]) -> None:
        if self._name == "cpu" and names:
            (copied,) = self._run(["copy"])
            self._found.copy_gb_per_s = copied.data.get("gb_per_s")
        for result in self._run([f"time {name}" for name in names]):
            kernel, _, shape = result.job.removeprefix("time ").rstrip("]").partition(" [")
            if result.status == "done" and "us" in result.data:
                rates = [result.data.get(key) for key in ("gb_per_s", "gflop_per_s")]
                figure = Figure(self._name, kernel, shape, result.data["us"], *rates)
                self._found.figures.append(figure)
            else:
                why = result.detail or str(result.data.get("detail"))
                lost = result.status if result.status != "done" else "error"
                model, _, of = shape.partition(": ")
                finding = Finding(self._name, kernel, model, of, lost, f"while timed: {why}")
                self._found.findings.append(finding)

    def _run(self, jobs: Sequence[str]) -> Iterator[Result]:
        def told() -> Iterator[str]:
            for job in jobs:
                self._progress(f"{self._name}: {job}")
                yield job

        opened = f"open {self._name}"
        return run_jobs(self._command, told(), limit_s=self._limit, first=opened)

    def _finding(self, result: Result) -> Finding:
        data = result.data
        kernel, _, rest = result.job.removeprefix("check ").rstrip("]").partition(" [")
        model, _, shape = rest.partition(": ")
        if result.job == "greedy":
            kernel, model, shape = GREEDY, "lily-tiny", "prompt and greedy steps"
        lost = "skipped" if result.status == "not run" else result.status
        return Finding(
            self._name,
            kernel,
            model,
            shape,
            data.get("result", "error") if result.status == "done" else lost,
            result.detail or data.get("detail", ""),
            data.get("launched", ""),
            data.get("share"),
            round(result.seconds, 3),
        )
