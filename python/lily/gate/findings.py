"""What the gate says: outcomes, categories, findings, verdicts.

This file owns the words and knows no detector and no rule of the policy. A finding holds offsets
and never text, so that findings may be logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from lily.gate.categories import Category, Subject, Topic

__all__ = [
    "Category",
    "Finding",
    "Mask",
    "Outcome",
    "Source",
    "Subject",
    "Topic",
    "TopicFinding",
    "Verdict",
]


class Outcome(str, Enum):
    """What may happen with a text, from the mildest to the strictest; the strictest rule wins."""

    ALLOW = "allow"
    MASK = "mask"
    ASK = "ask"
    LOCAL = "local"
    REFUSE = "refuse"

    @property
    def strictness(self) -> int:
        """0 for allow to 4 for refuse."""
        return list(Outcome).index(self)

    @staticmethod
    def strictest(*outcomes: Outcome) -> Outcome:
        """The strictest of them; allow of none."""
        return max(outcomes, key=lambda each: each.strictness, default=Outcome.ALLOW)


class Source(str, Enum):
    """Which part of the gate found something."""

    RULE = "rule"
    NEURAL = "neural"
    USER = "user"


@dataclass(frozen=True, order=True)
class Finding:
    """A span of private text: `text[start:end]` in characters of the text as it was given."""

    start: int
    end: int
    category: Category
    confidence: float  # 0 to 1; 1 for a validated identifier (a checksum held)
    rule: str  # id of what found it, such as "card.luhn", "secret.github-pat", "neural.person"
    source: Source = Source.RULE

    @property
    def span(self) -> tuple[int, int]:
        """(start, end)."""
        return self.start, self.end


@dataclass(frozen=True)
class TopicFinding:
    """A topic of the whole text with the person whom it is about; it has no span."""

    topic: Topic
    subject: Subject
    confidence: float  # of the topic
    subject_confidence: float
    rule: str = "neural.document"


@dataclass(frozen=True)
class Mask:
    """A finding that a placeholder stands for."""

    finding: Finding
    placeholder: str
    restorable: bool


@dataclass(frozen=True)
class Verdict:
    """The answer of `Gate.inspect`.

    `masked` is the text with placeholders: equal to the text where nothing is masked, empty where
    the text could not be judged. `mapping` leads from placeholder to original for those that may be
    restored; secrets are never in it. `masks` says which finding each placeholder of `masked`
    stands for, in order.
    """

    outcome: Outcome
    destination: str
    findings: tuple[Finding, ...]
    topics: tuple[TopicFinding, ...]
    reasons: tuple[str, ...]  # sentences, strictest first; they quote nothing private
    rules: tuple[str, ...]  # ids of the policy's rules that decided, strictest first
    masked: str = field(repr=False)  # what is not masked may still be private
    mapping: Mapping[str, str] = field(default_factory=dict, repr=False)
    masks: tuple[Mask, ...] = field(default=(), repr=False)

    @property
    def may_leave(self) -> bool:
        """Whether `masked` may be sent without asking anybody."""
        return self.outcome in (Outcome.ALLOW, Outcome.MASK)
