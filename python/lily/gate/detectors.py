"""What the gate asks of its detectors, and the place where the real ones are imported.

This file owns the seam between judging and finding. It knows no rule, no model and no policy, so
that tests can put scripted detectors in, and a missing or damaged detector shows up here and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from lily.gate.findings import Finding, TopicFinding

if TYPE_CHECKING:
    from lily.gate.neural import Reader


# Logits towards precision: the rules find much by themselves, so that in the gate the reader may be
# a little stricter than by itself.
_DIAL = 0.5


class Reading(Protocol):
    """What the neural reader says of a text."""

    @property
    def findings(self) -> Sequence[Finding]:
        """Spans."""

    @property
    def topics(self) -> Sequence[TopicFinding]:
        """Topics of the whole text."""

    @property
    def judged(self) -> bool:
        """False where the language or the form of the text is not one that the reader knows."""


class Detectors(Protocol):
    """Finders of private things. They may raise anything; the gate then lets nothing leave."""

    def rules(self, text: str) -> Sequence[Finding]:
        """Findings of the rules, in offsets of ``text``."""

    def read(self, text: str) -> Reading:
        """Findings and topics of the neural reader, in offsets of ``text``."""


class BuiltIn:
    """The rules and the neural reader that come with the package; loaded when first used.

    Args:
        country: ISO 3166 code whose national numbers are recognised without a word beside them.
    """

    def __init__(self, country: str | None = None) -> None:
        self._country = country
        self._reader: Reader | None = None

    def rules(self, text: str) -> Sequence[Finding]:
        """Findings of the rules."""
        from lily.gate.normalize import normalize
        from lily.gate.rules import find

        return find(normalize(text), country=self._country)

    def read(self, text: str) -> Reading:
        """What the reader says. Raises what loading it raises."""
        if self._reader is None:
            from lily.gate.neural import Reader

            self._reader = Reader.load(outside_offset=_DIAL)
        return self._reader.read(text)
