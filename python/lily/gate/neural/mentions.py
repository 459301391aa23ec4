"""Every other mention of what was found once: a name that is private in one place is in all.

This file owns what counts as a mention. It looks only at the text and the findings, in time linear
in the text, and knows no network.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from lily.gate.categories import Category
from lily.gate.findings import Finding

LEAST = 0.5  # confidence of a finding whose other mentions are looked for
_MOST_RUNS = 8  # of letters and digits in a value; longer ones are no names
_LEAST_PART = 3  # letters of a part of a name that is looked for by itself

# What names a person or a thing wherever it stands. Ages, dates, places and conditions do not.
_NAMES = frozenset({Category.PERSON, Category.USERNAME, Category.ORGANIZATION})
_NUMBERS = frozenset(
    {
        Category.BANK_ACCOUNT,
        Category.CASE_NUMBER,
        Category.DRIVING_LICENSE,
        Category.EMAIL,
        Category.GOVERNMENT_ID,
        Category.HEALTH_ID,
        Category.IBAN,
        Category.LICENSE_PLATE,
        Category.OTHER_ID,
        Category.PASSPORT,
        Category.PAYMENT_CARD,
        Category.PHONE,
        Category.SECRET,
        Category.VEHICLE_ID,
    }
)
# Titles and particles: parts of names that name nobody.
_PARTICLES = (
    "mrs miss mister prof professor doctor sir madam lady lord saint von van der den del dos las "
    "los and the for jun sen"
)
_NOT_ALONE = frozenset(_PARTICLES.split())
# Names that are words, too: where a text has no capitals, or nothing else, only a full name tells.
_WORDS_TOO = (
    "will mark may june april august grace hope faith joy rose dawn bill art pat sue rob drew "
    "chase grant jack frank rich guy ray dean max miles dale cliff penny olive ivy iris"
)
_ALSO_WORDS = frozenset(_WORDS_TOO.split())
_RUN = re.compile(r"[^\W_]+")
_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_SENTENCE_END = ".!?:;\n\r\u2022\"'\u201c\u2018(["


@dataclass
class _Value:
    """Something to look for: `text` with its white space made one, as it was found."""

    text: str
    source: Finding
    is_part: bool


@dataclass
class _Values:
    """By their runs in lower case; `lengths` by the first run."""

    by_runs: dict[tuple[str, ...], list[_Value]] = field(default_factory=dict)
    lengths: dict[str, set[int]] = field(default_factory=dict)

    def add(self, value: _Value) -> None:
        """Enter one, unless it is entered."""
        runs = tuple(_RUN.findall(value.text.casefold()))
        if not 0 < len(runs) <= _MOST_RUNS:
            return
        same = self.by_runs.setdefault(runs, [])
        if all(one.text != value.text or one.is_part != value.is_part for one in same):
            same.append(value)
        self.lengths.setdefault(runs[0], set()).add(len(runs))


def mentions(text: str, findings: Iterable[Finding]) -> list[Finding]:
    """Findings of what `findings` name once more, in order; none overlaps one of these.

    Capitals count: a name found as "Mark" is not looked for as "mark", which may be a verb, unless
    more than one word agrees. Parts of a person's name are looked for alone; at the beginning of a
    sentence only where the text nowhere has them in lower case. In a text without capitals, or with
    nothing else, a single word is looked for unless it is one of those that are often no name.
    """
    found = sorted(findings)
    values = _values(text, found)
    if not values.by_runs:
        return []
    runs = [(match.start(), match.end()) for match in _RUN.finditer(text)]
    folded = [text[start:end].casefold() for start, end in runs]
    writing = _Writing(text, runs)
    more: list[Finding] = []
    place = 0
    free = _Free(found)
    while place < len(runs):
        for count in sorted(values.lengths.get(folded[place], ()), reverse=True):
            start, end = runs[place][0], runs[min(place + count, len(runs)) - 1][1]
            known = values.by_runs.get(tuple(folded[place : place + count]), ())
            value = next((one for one in known if writing.is_mention(start, end, one)), None)
            if value is not None and free.is_free(start, end):
                rule = f"{value.source.rule}.mention"
                more.append(replace(value.source, start=start, end=end, rule=rule))
                place += count - 1
                break
        place += 1
    return more


def _values(text: str, found: list[Finding]) -> _Values:
    values = _Values()
    for one in sorted(found, key=lambda each: -each.confidence):
        if one.confidence < LEAST or one.category not in _NAMES | _NUMBERS:
            continue
        whole = " ".join(text[one.start : one.end].split())
        letters = sum(map(str.isalnum, whole))
        if letters < 2 or (one.category in _NUMBERS and letters < 4):
            continue
        values.add(_Value(whole, one, is_part=False))
        if one.category is Category.PERSON:
            for part in _parts(whole):
                values.add(_Value(part, one, is_part=True))
    return values


def _parts(name: str) -> Iterator[str]:
    """Words of a name of several that may stand for the person alone."""
    words = _WORD.findall(name)
    for word in words if len(words) > 1 else ():
        letters = "".join(_RUN.findall(word))
        if len(letters) >= _LEAST_PART and letters.isalpha() and word.casefold() not in _NOT_ALONE:
            yield word


class _Writing:
    """How a text uses capitals, and which of its names it also uses as words."""

    def __init__(self, text: str, runs: list[tuple[int, int]]) -> None:
        self._text = text
        self._words = {text[start:end] for start, end in runs if text[start].islower()}
        self._says_nothing = not self._words or text.islower()  # only capitals, or none

    def is_mention(self, start: int, end: int, value: _Value) -> bool:
        """Whether text[start:end], whose runs are the value's, is written as a mention of it is."""
        written = " ".join(self._text[start:end].split())
        if written.casefold() != value.text.strip(".,;:()").casefold():
            return False
        if value.source.category in _NUMBERS or " " in written:
            return True
        if self._says_nothing:
            return written.lower() not in _ALSO_WORDS
        if not value.text[0].isupper():
            return written == value.text and not value.is_part
        if not written[0].isupper():
            return False
        if written.lower() not in self._words or (written == value.text and not value.is_part):
            return True
        before = self._text[max(0, start - 4) : start].rstrip(" \t")
        return bool(before) and before[-1] not in _SENTENCE_END


class _Free:
    """Which characters no finding has yet."""

    def __init__(self, found: list[Finding]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for one in found:  # in order of their start
            if self._ends and one.start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], one.end)
            else:
                self._starts.append(one.start)
                self._ends.append(one.end)

    def is_free(self, start: int, end: int) -> bool:
        """Whether no finding touches text[start:end]."""
        last = bisect_right(self._starts, end - 1) - 1
        return last < 0 or self._ends[last] <= start
