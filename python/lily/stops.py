"""Stop strings, cut exactly wherever the tokens happen to fall.

This file owns text only: it is pushed pieces of text and gives back what may be shown. A stop
string is never shown, not even its first characters. It knows no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Watches a stream of text for stop strings.

    The first stop string to be *complete* ends the text; of two that complete on the same
    character the longer one is cut. So the result does not depend on how the text is sliced.

    Example:
        >>> stops = StopMatcher(["END"])
        >>> stops.push("one E"), stops.push("ND two"), stops.hit
        ('one ', '', 'END')
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.hit: str | None = None
        """The stop string that was met."""

    def push(self, text: str) -> str:
        """The text that can be shown now; what may begin a stop string is held back."""
        if self.hit is not None:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        ends = []
        for stop in self._stops:
            start = text.find(stop)
            if start >= 0:
                ends.append((start + len(stop), start, stop))
        if ends:
            _, start, self.hit = min(ends)
            self._held = ""
            return text[:start]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, when no more text follows."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of ``stop``."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
