"""Readings: a text edited for detectors, with an exact map back to the original.

This file owns edits and offset maps. It knows neither what to edit nor what is looked for.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

Edit = tuple[int, int, str]  # [start, end) of the source and what stands there instead


class OffsetMap:
    """From spans of an edited text to spans of its source.

    Text between the edits maps character by character; a replacement maps as a whole, so a span
    that touches it covers all that it replaced. What an edit deleted belongs to a span only where
    the span goes on at both sides. What an edit inserted has an empty span.
    """

    __slots__ = ("_at", "_end", "_start")

    def __init__(self, at: list[int], start: list[int], end: list[int]) -> None:
        self._at = at  # where each piece begins in the edited text
        self._start = start  # and in the source
        self._end = end  # the end of a replacement in the source; -1 for verbatim text

    def _character(self, at: int) -> tuple[int, int]:
        piece = bisect_right(self._at, at) - 1
        if self._end[piece] >= 0:
            return self._start[piece], self._end[piece]
        begin = self._start[piece] + at - self._at[piece]
        return begin, begin + 1

    def source(self, start: int, end: int) -> tuple[int, int]:
        """The least span of the source that holds what `[start, end)` shows; it is not empty."""
        return self._character(start)[0], self._character(end - 1)[1]


def edit(text: str, edits: Iterable[Edit]) -> tuple[str, OffsetMap]:
    """Apply sorted edits; those that begin inside an earlier one are dropped."""
    parts: list[str] = []
    at: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    length = done = 0

    def put(part: str, start: int, end: int) -> None:
        nonlocal length
        if part:
            parts.append(part)
            at.append(length)
            starts.append(start)
            ends.append(end)
            length += len(part)

    for start, end, replacement in edits:
        if start < done:
            continue
        put(text[done:start], done, -1)
        put(replacement, start, end)
        done = end
    put(text[done:], done, -1)
    return "".join(parts), OffsetMap(at, starts, ends)


@dataclass(frozen=True)
class Reading:
    """A text that detectors read in place of the original."""

    name: str
    text: str
    original: str
    maps: tuple[OffsetMap, ...] = ()  # from this text back to the original

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The least span of the original for `[start, end)`, never ending inside a grapheme."""
        if start >= end:
            raise ValueError(f"a span must hold text, got [{start}, {end})")
        for each in self.maps:
            start, end = each.source(start, end)
        while end < len(self.original) and unicodedata.combining(self.original[end]):
            end += 1
        return start, end

    def edited(self, name: str, edits: list[Edit]) -> Reading | None:
        """The reading after edits of this one's text; None where nothing changes."""
        if not edits:
            return None
        text, offsets = edit(self.text, edits)
        return Reading(name, text, self.original, (offsets, *self.maps))
