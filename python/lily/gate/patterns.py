"""A user's own patterns, words to deny and words to allow, found in a text.

This file owns RE2, whose patterns take time linear in the text whatever is written in them, so that
no setting can stop the gate. It knows neither policy nor settings file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from lily.errors import InvalidInput
from lily.gate.findings import Category, Finding, Outcome, Source

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_MAX_PATTERN = 2_000
_MAX_HITS = 100_000  # a match may look far ahead; without a bound, many such would be quadratic
DENY = "user.deny"


@dataclass(frozen=True)
class Pattern:
    """Something that a user wants found.

    ``pattern`` is in RE2's syntax: as Python's, without look-around and back-references.
    Raises InvalidInput where it is not, or where RE2 is not installed.
    """

    name: str
    pattern: str
    category: Category = Category.OTHER_ID
    outcome: Outcome = Outcome.MASK
    _compiled: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidInput(
                f"pattern {self.name!r} has no good name; expected small letters, digits, - and _"
            )
        if len(self.pattern) > _MAX_PATTERN:
            raise InvalidInput(
                f"pattern {self.name!r} has {len(self.pattern)} characters, "
                f"expected at most {_MAX_PATTERN}"
            )
        object.__setattr__(self, "_compiled", _compile(self.pattern, f"pattern {self.name!r}"))
        if self._compiled.search("") is not None:
            raise InvalidInput(f"pattern {self.name!r} matches the empty text, and so everywhere")

    @property
    def rule(self) -> str:
        """Id of its findings."""
        return f"user.{self.name}"

    def find(self, text: str) -> Iterator[Finding]:
        """Its findings. Raises ValueError where they are too many to be meant."""
        for count, match in enumerate(self._compiled.finditer(text)):
            if count == _MAX_HITS:
                raise ValueError(f"pattern {self.name!r} matches more than {_MAX_HITS} times")
            start, end = match.span()
            if start < end:
                yield Finding(start, end, self.category, 1.0, self.rule, Source.USER)


class Words:
    """A list of words to find, whatever their case; whole words where they begin or end as such."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [_folded(word)[0].strip() for word in words]

    def find(self, text: str) -> Iterator[Finding]:
        """A finding for each place where one of the words stands."""
        if not self._words:
            return
        seen, places = _folded(text)
        for word in self._words:
            start = seen.find(word)
            while start >= 0:
                end = start + len(word)
                if not (joined(seen, start) or joined(seen, end)):
                    span = places[start], places[end - 1] + 1
                    yield Finding(*span, Category.OTHER_ID, 1.0, DENY, Source.USER)
                start = seen.find(word, start + 1)


def joined(text: str, place: int) -> bool:
    """Whether the characters on both sides of a place are of one word."""
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()


def _folded(text: str) -> tuple[str, Sequence[int]]:
    """A text without case, width and invisible characters, and where each character stood."""
    if text.isascii():
        return re.sub(r"\s", " ", text.lower()), range(len(text))
    made, places = [], []
    for place, char in enumerate(text):
        if unicodedata.category(char) == "Cf":
            continue
        folded = " " if char.isspace() else unicodedata.normalize("NFKC", char).casefold()
        made.append(folded)
        places += [place] * len(folded)
    return "".join(made), places


def plain(text: str) -> str:
    """A text as it is compared: NFKC, no invisible characters, one case, single spaces."""
    folded = unicodedata.normalize("NFKC", text)
    seen = "".join(char for char in folded if unicodedata.category(char) != "Cf")
    return " ".join(seen.casefold().split())


def _compile(pattern: str, where: str) -> Any:
    try:
        import re2
    except ImportError as error:
        raise InvalidInput(
            f"{where}: patterns need RE2: pip install 'lily-engine[gate]'"
        ) from error
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        said = error.args[0] if error.args else error
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise InvalidInput(f"{where} cannot be used: {said}") from error
