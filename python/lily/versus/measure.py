"""The order of a comparison: lengths, rounds, engines in turn, pauses and gates.

Owns what a run may go on after. Knows the engines by name only, and writes no file.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lily import machine
from lily.errors import DeviceError
from lily.versus.plan import Plan
from lily.watch import run_jobs

ENGINES = ("lily", "mlx-lm")
_LIMIT_S = 3600.0  # of one process, however long its prompt
_LONGEST_WAIT_S = 1800.0  # for a hot machine, between two processes
_ASK_AGAIN_S = 15.0

Command = Callable[[str, Plan], Sequence[str]]
Progress = Callable[[str], None]
Gate = Callable[[], list[str]]


@dataclass(frozen=True)
class Sample:
    """One process."""

    engine: str
    length: int
    round: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    digest: str
    greedy: tuple[int, ...]
    thermal_state: str | None


@dataclass
class Comparison:
    """All samples, and what else a reader must know."""

    plan: Plan
    machine: dict[str, Any] = field(default_factory=machine.facts)
    engines: dict[str, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    broken_off: str = ""

    def rates(self, engine: str, length: int, phase: str) -> list[float]:
        """Tokens a second of each round; `phase` is "prefill" or "decode"."""
        return [
            getattr(sample, f"{phase}_tokens_per_s")
            for sample in self.samples
            if (sample.engine, sample.length) == (engine, length)
        ]

    def median(self, engine: str, length: int, phase: str) -> float:
        """Over the rounds."""
        return statistics.median(self.rates(engine, length, phase))

    def complete_lengths(self) -> list[int]:
        """Those that every engine ran in every round, with the same greedy tokens each time."""

        def is_complete(engine: str, length: int) -> bool:
            rounds = len(self.rates(engine, length, "decode"))
            return rounds == self.plan.rounds and len(self.digests(engine, length)) == 1

        return [n for n in self.plan.lengths if all(is_complete(e, n) for e in ENGINES)]

    def digests(self, engine: str, length: int) -> list[str]:
        """The different digests of an engine's greedy tokens: one, if all is well."""
        found = {s.digest for s in self.samples if (s.engine, s.length) == (engine, length)}
        return sorted(found)

    def agreement(self, length: int) -> int:
        """How many greedy tokens both engines share before the first that differs."""
        first = {s.engine: s.greedy for s in self.samples if s.length == length}
        pairs = zip(*(first[engine] for engine in ENGINES), strict=True)
        same = [a == b for a, b in pairs]
        return same.index(False) if False in same else len(same)


def child_command(engine: str, plan: Plan) -> Sequence[str]:
    """A fresh interpreter with one engine."""
    words = [engine, str(plan.model), plan.device, str(plan.vocab)]
    return [sys.executable, "-m", "lily.versus.child", *words]


def compare(
    plan: Plan,
    *,
    progress: Progress = lambda _: None,
    command: Command = child_command,
    gate: Gate = machine.unfit_to_measure,
    longest_wait_s: float = _LONGEST_WAIT_S,
) -> Comparison:
    """Run everything; what was measured before a failure is kept, with the reason of the end."""
    found = Comparison(plan)
    try:
        for length in plan.lengths:
            for turn in range(plan.rounds):
                # The engine that begins finds the machine cooler: each begins equally often.
                for engine in ENGINES if turn % 2 == 0 else reversed(ENGINES):
                    _wait_until_fit(found, gate, longest_wait_s)
                    progress(f"{length:,} tokens, round {turn + 1} of {plan.rounds}: {engine}")
                    found.samples.append(_sample(found, command, engine, length, turn))
                    _require_repeats(found, engine, length)
    except (DeviceError, KeyboardInterrupt) as error:
        found.broken_off = str(error) or "stopped by the user"
    return found


def _wait_until_fit(found: Comparison, gate: Gate, longest_wait_s: float) -> None:
    time.sleep(found.plan.cooldown_s if found.samples else 0)
    begin = time.monotonic()
    first = amiss = gate()
    while amiss:
        waited = time.monotonic() - begin
        if waited > longest_wait_s:
            raise DeviceError(f"waited {waited:.0f} s: {'; '.join(amiss)}")
        time.sleep(min(_ASK_AGAIN_S, longest_wait_s / 10))
        amiss = gate()
    if first:
        found.waits.append(f"{time.monotonic() - begin:.0f} s: {'; '.join(first)}")


def _sample(found: Comparison, command: Command, engine: str, length: int, turn: int) -> Sample:
    plan = found.plan
    job = f"{length} {plan.tokens}"
    (result,) = run_jobs(command(engine, plan), [job], limit_s=lambda _: _LIMIT_S)
    if result.status != "done" or not result.data.get("ok", True):
        how = f"{result.status}: {result.detail}" if result.detail else result.data.get("detail")
        raise DeviceError(f"{engine} at {length:,} tokens: {how}")
    data = result.data
    found.engines[engine] = data["about"]
    return Sample(
        engine,
        length,
        turn,
        length / data["prefill_s"],
        plan.tokens / data["decode_s"],
        data["digest"],
        tuple(data["greedy"]),
        machine.thermal_state(),
    )


def _require_repeats(found: Comparison, engine: str, length: int) -> None:
    digests = found.digests(engine, length)
    if len(digests) > 1:
        raise DeviceError(
            f"{engine} gave other greedy tokens for the same {length:,} ids in another round: "
            f"digests {', '.join(digests)}, expected one"
        )
