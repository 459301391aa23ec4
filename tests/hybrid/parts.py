"""What tests of hybrid runs are put together from: a worker that is scripted, and a short run.

This file owns defaults alone; the planner's script is the test's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from lily.gate import Gate
from lily.gate.settings import parse
from lily.hybrid import Hybrid, HybridSettings
from lily.hybrid.outbound import Outbound
from lily.hybrid.settings import PlannerSettings

from tests.gate.scripted import Scripted


@dataclass
class Worker:
    """Stands in for the engine: a function from the last message to the answer."""

    say: Callable[[str], str] = lambda asked: "All is well."
    asked: list[str] = field(default_factory=list)
    max_context: int = 4096

    def generate(self, prompt: Any, **_: Any) -> Any:
        """As ``Engine.generate``."""
        self.asked.append(prompt[-1]["content"])
        return _Found(self.say(self.asked[-1]))


@dataclass
class _Found:
    text: str


def hybrid(
    base_url: str,
    worker: Any = None,
    *,
    gate: str = "",
    detectors: Any = None,
    consent: Any = None,
    pauses: list[float] | None = None,
    settings: HybridSettings | None = None,
    **planner: Any,
) -> Hybrid:
    """A run against a scripted planner, whose pauses are noted and not made."""
    chosen = PlannerSettings(**{"base_url": base_url, "model": "m", "timeout_s": 20.0, **planner})

    def outbound(*arguments: Any) -> Outbound:
        waits = [] if pauses is None else pauses
        return Outbound(*arguments, pause=waits.append)

    return Hybrid(
        replace(settings or HybridSettings(), planner=chosen),
        worker or Worker(),
        lambda: Gate(parse(gate), detectors=detectors or Scripted()),
        consent=consent,
        make_outbound=outbound,
    )


def script(*replies: Any) -> Callable[[list[dict[str, Any]]], Any]:
    """These replies one after another, the last again and again."""
    waiting = list(replies)

    def next_one(messages: list[dict[str, Any]]) -> Any:
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    return next_one
