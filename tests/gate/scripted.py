"""Detectors that a test writes down: a few patterns, and what the reader says.

They make the policy, the masking and the failures testable by themselves. They know no real rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lily.gate import Category, Finding, Gate, TopicFinding
from lily.gate.findings import Source
from lily.gate.settings import parse

PATTERNS = (
    (Category.EMAIL, r"[\w.]+@[\w.]+\w", 1.0),
    (Category.PAYMENT_CARD, r"\d{4}(?:[ -]?\d{4}){3}", 1.0),
    (Category.SECRET, r"sk-[A-Za-z0-9]{8,}", 1.0),
    (Category.PHONE, r"\+\d[\d ]{7,14}\d", 0.9),
)
NAMES = r"\b(?:John Dorsey|John Smith|John|Ann Vale|Ann)\b"


@dataclass
class Read:
    """What the scripted reader says."""

    findings: Sequence[Finding] = ()
    topics: Sequence[TopicFinding] = ()
    judged: bool = True


@dataclass
class Scripted:
    """Patterns as rules, names as the reader; ``fail`` is called first and may raise or wait."""

    topics: Sequence[TopicFinding] = ()
    judged: bool = True
    extra: Sequence[Finding] = ()
    fail: Callable[[], None] = lambda: None
    seen: list[str] = field(default_factory=list)

    def rules(self, text: str) -> Sequence[Finding]:
        self.seen.append(text)
        return [
            Finding(*match.span(), category, confidence, f"test.{category.value}")
            for category, pattern, confidence in PATTERNS
            for match in re.finditer(pattern, text)
        ]

    def read(self, text: str) -> Read:
        self.fail()
        names = [
            Finding(*match.span(), Category.PERSON, 0.9, "neural.person", Source.NEURAL)
            for match in re.finditer(NAMES, text)
        ]
        return Read([*names, *self.extra], self.topics, self.judged)


def gate(settings: str = "", **detectors: Any) -> Gate:
    """A gate with settings from TOML and scripted detectors."""
    return Gate(parse(settings), detectors=Scripted(**detectors))


def chat(*texts: str, role: str = "user") -> list[dict[str, Any]]:
    """A message for each text."""
    return [{"role": role, "content": text} for text in texts]


def raising(error: BaseException) -> Callable[[], None]:
    """Something that raises."""

    def fail() -> None:
        raise error

    return fail
