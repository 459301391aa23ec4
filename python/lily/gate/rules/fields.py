"""Labelled fields: a value that a label before it explains ("Account no.: 884120193", "dob=...").

This file owns the matching of labels, in prose, forms, JSON, XML and code alike; which labels
there are, and what their values look like, is `labels.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.scan import Scan, Word

_NUMBER_WORD = (
    r"(?:[ _-]?\(?(?:numbers?|num|no|n°|nr|nro|number "
    r"is|id|code|#|numero|número|numéro|nummer)(?![a-z])\.?\)?)?"
)
_QUOTES = r"[\"'`*_\\]{0,3}"
_SIGN = r"(?:(?:is|was|are|to|es|ist|est|lautet)\b|:=|=>|->|::|[:=>|#])"
# A sign or a verb between label and value, or only a gap.
LINKED = re.compile(
    rf"\.?{_QUOTES}{_NUMBER_WORD}{_QUOTES}\)?\s{{0,3}}(?:{_SIGN}\s{{0,4}}){{1,2}}{_QUOTES}",
    re.IGNORECASE,
)
LOOSE = re.compile(
    rf"\.?{_QUOTES}{_NUMBER_WORD}{_QUOTES}\)?[,;?]?(?:\s{{1,4}}|(?=[:=>"
    rf"|#(]))\(?(?:{_SIGN}\s{{0,4}}){{0,2}}{_QUOTES}",
    re.IGNORECASE,
)
# Only a sign, as in a form: a sentence about the label is no value.
FORM = re.compile(rf"{_QUOTES}\)?\s{{0,3}}(?::=|=>|[:=>|])\s{{0,4}}{_QUOTES}")
_MAX_GAP = 3  # characters between the words of a label


@dataclass(frozen=True)
class Field:
    """What stands behind some labels."""

    category: Category
    rule: str
    labels: tuple[str, ...]  # in lower case; words apart by one space
    value: re.Pattern[str]  # its first group, or all of it, is the finding
    confidence: float = 0.9
    check: Callable[[str], bool] | None = None  # a checksum; where it holds the confidence is 1
    strict: bool = False  # nothing without the checksum
    link: re.Pattern[str] = LOOSE  # what must stand between label and value
    refuses: frozenset[str] = frozenset()  # values, in lower case, that are nobody's

    def finding(self, scan: Scan, at: int) -> Finding | None:
        """The finding whose label ends at `at`, if its value follows."""
        link = self.link.match(scan.text, at)
        value = self.value.match(scan.text, link.end()) if link else None
        if value is None:
            return None
        start, end = value.span(1 if value.re.groups else 0)
        text = scan.text[start:end]
        if text.lower() in self.refuses:
            return None
        valid = self.check is not None and self.check(text)
        if self.strict and not valid:
            return None
        return Finding(start, end, self.category, 1.0 if valid else self.confidence, self.rule)


class Labels:
    """An index from the first word of a label to the fields that have it."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._index: dict[str, list[tuple[tuple[str, ...], Field]]] = {}
        for field in fields:
            for label in field.labels:
                first, *rest = label.replace("'", " ").split(" ")
                self._index.setdefault(first, []).append((tuple(rest), field))
        for entries in self._index.values():
            entries.sort(key=lambda entry: -len(entry[0]))

    def find(self, scan: Scan) -> Iterator[Finding]:
        """All fields of a text."""
        words = scan.words
        for at, word in enumerate(words):
            for rest, field in self._index.get(word.text, ()):
                last = at + len(rest)
                if rest and not _follows(words, at, rest):
                    continue
                finding = field.finding(scan, words[last].end)
                if finding is not None:
                    yield finding
                    break


def _follows(words: list[Word], at: int, rest: tuple[str, ...]) -> bool:
    if at + len(rest) >= len(words):
        return False
    for step, expected in enumerate(rest, at + 1):
        if words[step].text != expected or words[step].start - words[step - 1].end > _MAX_GAP:
            return False
    return True
