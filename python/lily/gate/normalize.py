"""Normalisation: every way in which a text is read, each with an exact map back to the original.

This file owns what a normalised text is: the detection copy, whose characters are folded, and the
views that differ from it. It knows no recogniser.
"""

from __future__ import annotations

from dataclasses import dataclass

from lily.gate.folding import folded
from lily.gate.readings import Reading
from lily.gate.views import views


@dataclass(frozen=True)
class Normalized:
    """A text and the ways to read it. `text` and `span` are those of the detection copy."""

    copy: Reading
    views: tuple[Reading, ...]

    @property
    def original(self) -> str:
        """The text as it was given."""
        return self.copy.original

    @property
    def text(self) -> str:
        """The detection copy."""
        return self.copy.text

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The least span of the original for a span of the detection copy."""
        return self.copy.span(start, end)


def normalize(text: str) -> Normalized:
    """Read a text in every way in which it may hold something private. Linear in its length."""
    copy = folded(Reading("copy", text, text))
    return Normalized(copy, tuple(views(copy)))
