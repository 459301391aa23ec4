"""A scan: one reading of a text with what recognisers ask about it, each worked out once.

This file owns words, context windows and guard zones of a reading. It knows no category's shape.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from lily.gate.findings import Finding
from lily.gate.rules.guards import zones

Recognizer = Callable[["Scan"], Iterator[Finding]]

# Words, with snake_case and camelCase taken apart and a possessive's "'s" left out.
_WORD = re.compile(
    r"([A-ZÀ-Þ]{1,64}(?![a-zß-ÿ])|[A-ZÀ-Þ]?[a-zß-ÿ]{1,64}|[^\W\d_]{1,64})(?:'s(?!\w))?"
)
_DIGIT = re.compile(r"\d")


class Word(NamedTuple):
    """A word in lower case and where it stands."""

    text: str
    start: int
    end: int


class Scan:
    """What recognisers read. Offsets are those of `text`."""

    def __init__(self, text: str, country: str | None = None) -> None:
        self.text = text
        self.country = country.upper() if country else None

    @cached_property
    def lower(self) -> str:
        """The text in lower case, character for character."""
        lowered = self.text.lower()
        if len(lowered) == len(self.text):
            return lowered
        return "".join(low if len(low := each.lower()) == 1 else each for each in self.text)

    @cached_property
    def has_digit(self) -> bool:
        """Whether there is any digit."""
        return _DIGIT.search(self.text) is not None

    @cached_property
    def words(self) -> list[Word]:
        """All words in order."""
        return [
            Word(match.group(1).lower(), match.start(), match.end())
            for match in _WORD.finditer(self.text)
        ]

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The words that occur."""
        return frozenset(word.text for word in self.words)

    @cached_property
    def _zones(self) -> tuple[list[int], list[int]]:
        found = zones(self.text)
        return [start for start, _ in found], [end for _, end in found]

    def guarded(self, start: int, end: int) -> bool:
        """Whether the span lies in something technical: a UUID, a version, a timestamp."""
        starts, ends = self._zones
        index = bisect_right(starts, start) - 1
        return index >= 0 and end <= ends[index]

    def before(self, at: int, width: int = 40) -> str:
        """Up to `width` characters before `at`, in lower case."""
        return self.lower[max(0, at - width) : at]

    def after(self, at: int, width: int = 24) -> str:
        """Up to `width` characters from `at`, in lower case."""
        return self.lower[at : at + width]
