"""The receipt of a run: what left this machine, to the byte, and what was done where.

This file owns the record and its two forms, JSON and text for people. It is filled by ``outbound``
(bytes) and ``release`` (decisions). Keys are never in it; the bodies that left are, whole, because
that is what a receipt is for, so it is as private as they are and no more.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = "this machine"
_NOT_CONNECTED = ("ConnectError", "ConnectTimeout")


@dataclass(frozen=True)
class Step:
    """One piece of work, where it was done, and what came of it, without private text."""

    work: str
    where: str
    result: str


@dataclass(frozen=True)
class Sent:
    """One request as it left.

    Attributes:
        headers: as sent, with the key's value replaced.
        body: exactly the bytes, as text (a planner's requests are JSON in UTF-8).
        outcome: status of the answer, or what went wrong; empty while it is under way.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: str
    outcome: str = ""

    @property
    def has_left(self) -> bool:
        """False where there was no connection to send anything on."""
        return self.outcome not in _NOT_CONNECTED

    @property
    def body_bytes(self) -> int:
        """Size of the body."""
        return len(self.body.encode())

    @property
    def sha256(self) -> str:
        """Of the body's bytes."""
        return hashlib.sha256(self.body.encode()).hexdigest()


@dataclass(frozen=True)
class Decision:
    """What the gate made of one text that would have left.

    Attributes:
        what: "task", "result r2", ...
        outcome: allow, mask, ask, local or refuse, as it was carried out.
        masked: how many spans of each category were masked.
        consent: the person's answer, where one was asked for.
    """

    what: str
    outcome: str
    reasons: tuple[str, ...] = ()
    masked: Mapping[str, int] = field(default_factory=dict)
    consent: bool | None = None


@dataclass
class Receipt:
    """Grows during a run."""

    planner: str = ""
    began: float = field(default_factory=time.time)
    steps: list[Step] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)

    @property
    def sent_bytes(self) -> int:
        """Bodies that left, together."""
        return sum(each.body_bytes for each in self.sent if each.has_left)

    def step(self, work: str, where: str, result: str) -> None:
        """Note a piece of work."""
        self.steps.append(Step(work, where, result))

    def summary(self) -> str:
        """One sentence."""
        requests = sum(each.has_left for each in self.sent)
        if not requests:
            return "Nothing left this machine."
        masked: Counter[str] = Counter()
        for decision in self.decisions:
            masked.update(decision.masked)
        kept = sum(decision.outcome in ("local", "refuse") for decision in self.decisions)
        parts = [
            f"{self.sent_bytes:,} bytes left in {_count(requests, 'request')} to {self.planner}",
            f"{_count(sum(masked.values()), 'item')} masked",
            f"{_count(kept, 'text')} kept here",
        ]
        return ", ".join(parts) + "."

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "planner": self.planner,
            "began": self.began,
            "summary": self.summary(),
            "steps": [asdict(step) for step in self.steps],
            "decisions": [
                {**asdict(decision), "masked": dict(decision.masked)} for decision in self.decisions
            ],
            "sent": [
                {
                    **asdict(sent),
                    "has_left": sent.has_left,
                    "body_bytes": sent.body_bytes,
                    "sha256": sent.sha256,
                }
                for sent in self.sent
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """As JSON, readable by its owner alone."""
        target = Path(path)
        text = json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)

    def routing(self) -> list[dict[str, str]]:
        """Where each piece of work was done, for the server's answers."""
        return [asdict(step) for step in self.steps]


def shown_headers(headers: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Headers as a receipt may hold them: the key is named, not shown."""
    return tuple(
        (name, "Bearer (key)" if name.lower() == "authorization" else value)
        for name, value in headers
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
