"""Whether a text carries a piece of private material, under disguises that a planner could ask for.

The gate judges what a text looks like; this guard knows what must not be in it. It holds
identifying words of all pieces and looks for them in several readings of a text: with separators
dropped, reversed, shifted, as first letters, decoded from base64, hex, binary, character codes or
percent signs, with digits written as words. No list of disguises is complete, which is why results
are also short (``ReleaseSettings``); what is caught wrongly only stays on this machine.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

_WORD = re.compile(r"[^\W_]+(?:[@._+\-/'’][^\W_]+)*", re.UNICODE)
_FEWEST_SQUEEZED = 5  # characters of a name or code; below, a match means nothing
_FEWEST_DIGITS = 4
_FRAGMENT_DIGITS, _LONG_DIGITS = 4, 8  # so many in a row, of a number of at least so many
_FRAGMENT_LETTERS, _LONG_WORD = 6, 8  # the same for words
_FEWEST_BARE, _MOST_BARE = 3, 12  # characters of a text that is a part of a value and no more
_MOST_DIGITS = 7  # of one number in a derived text: no sum or count needs more
_LONG_CODE = 10  # characters of a word with a digit or a capital inside: a key, no word
_PLAIN_NUMBER = re.compile(r"(?:19|20)\d\d|\d{1,6}[.,]\d{1,2}|\d{1,3}[.,]\d{3}(?:[.,]\d\d)?")
_INNER_CAPITAL = re.compile(r"[a-z][A-Z]")
_SIDE_BY_SIDE = re.compile(
    r"\b(?=([A-ZÀ-Þ][\w'’-]+)[ ]([A-ZÀ-Þ][\w'’-]+))"  # pairs overlap: of three names, two
)
_NUMBER = re.compile(r"\d(?:[\s.,'’_-]?\d)*")
_RUN_WORDS = 7  # of material in a row
_MOST_DEPTH = 2  # of encodings inside one another

_DIGIT_WORDS = {
    word: str(digit)
    for words in (
        "zero one two three four five six seven eight nine",
        "cero uno dos tres cuatro cinco seis siete ocho nueve",
        "null eins zwei drei vier fünf sechs sieben acht neun",
        "zéro un deux trois quatre cinq six sept huit neuf",
    )
    for digit, word in enumerate(words.split())
} | {"oh": "0"}
_NOISE = re.compile(r"[^a-z0-9]+")
_LEET = str.maketrans("@$", "as")
_ENCODED = (
    (re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}"), "base64"),
    (re.compile(r"(?:[0-9A-Fa-f]{2}[\s:,-]?){4,}"), "hex"),
    (re.compile(r"(?:[01]{8}[\s,]*){4,}"), "binary"),
    (re.compile(r"(?:\b\d{2,3}\b[\s,;-]*){4,}"), "codes"),
)


class LeakGuard:
    """Knows the private words of a run, and finds them in texts."""

    def __init__(self) -> None:
        self._atoms: dict[str, set[str]] = {}  # by their first characters
        self._fragments: set[str] = set()
        self._runs: set[tuple[str, ...]] = set()

    def learn(self, text: str, private: Iterable[str]) -> None:
        """Remember a piece: the values that the gate found in it, and its own peculiar words."""
        for value in private:
            self._add(value)
            for word in _WORD.findall(value):
                self._add(word)
        for word in _WORD.findall(text):
            if _is_code(word):
                self._add(word)
        for name in _names(text):
            self._add(name, pieces=False)
        words = _plain_words(text)
        self._runs.update(_runs(words))

    def permit(self, text: str) -> None:
        """Forget what stands in a text that may leave anyway: it must not block the rest."""
        squeezed = _squeeze(text)
        for found in list(self._atoms_in(squeezed)):
            self._atoms[found[:_FEWEST_DIGITS]].discard(found)
        words = _plain_words(text)
        self._runs.difference_update(_runs(words))

    def finds_in_series(self, texts: Iterable[str]) -> bool:
        """Whether short texts, one after another, spell something private."""
        series = "".join(map(_squeeze, texts))
        return any(map(self._has_piece, (series, "".join(filter(str.isdigit, series)))))

    def finds(self, text: str, *, derived: bool) -> bool:
        """Whether the text carries something private.

        Args:
            derived: the text was made from private material; then a few digits in a row of a long
                identifier count, too, and any long number.
        """
        if derived and self._is_bare_part(_squeeze(text)):
            return True
        for reading in _readings(text, _MOST_DEPTH):
            if derived and any(
                sum(map(str.isdigit, number)) > _MOST_DIGITS for number in _NUMBER.findall(reading)
            ):
                return True
            if any(run in self._runs for run in _runs(_plain_words(reading))):
                return True
            squeezed = _squeeze(reading)
            if any(True for way in (squeezed, squeezed[::-1]) for _ in self._atoms_in(way)):
                return True
            digits = "".join(filter(str.isdigit, squeezed))
            if derived and (self._has_piece(squeezed) or self._has_piece(digits)):
                return True
        return False

    def _add(self, value: str, *, pieces: bool = True) -> None:
        squeezed = _squeeze(value)
        digits = sum(letter.isdigit() for letter in squeezed)
        if len(squeezed) < _FEWEST_SQUEEZED and digits < _FEWEST_DIGITS:
            return
        self._atoms.setdefault(squeezed[:_FEWEST_DIGITS], set()).add(squeezed)
        if digits >= _LONG_DIGITS:
            self._fragments.update(filter(str.isdigit, _windows(squeezed, _FRAGMENT_DIGITS)))
        if pieces and len(squeezed) >= _LONG_WORD:
            self._fragments.update(_windows(squeezed, _FRAGMENT_LETTERS))

    def _has_piece(self, squeezed: str) -> bool:
        """Whether a value, or a part of a long one, stands in it."""
        return any(True for _ in self._atoms_in(squeezed)) or any(
            squeezed[at : at + length] in self._fragments
            for length in (_FRAGMENT_DIGITS, _FRAGMENT_LETTERS)
            for at in range(len(squeezed) - length + 1)
        )

    def _is_bare_part(self, squeezed: str) -> bool:
        """Whether it is nothing but a part of some value, as halves of a short code are."""
        short = _FEWEST_BARE <= len(squeezed) <= _MOST_BARE
        ways = (squeezed, squeezed[::-1])
        return short and any(
            way in atom for atoms in self._atoms.values() for atom in atoms for way in ways
        )

    def _atoms_in(self, squeezed: str) -> Iterator[str]:
        for at in range(len(squeezed) - _FEWEST_DIGITS + 1):
            for atom in self._atoms.get(squeezed[at : at + _FEWEST_DIGITS], ()):
                if squeezed.startswith(atom, at):
                    yield atom


def _is_code(word: str) -> bool:
    """An identifier, an address or a key, by its looks."""
    if _PLAIN_NUMBER.fullmatch(word):
        return False
    digits = sum(map(str.isdigit, word))
    mixed = digits > 0 or _INNER_CAPITAL.search(word) is not None
    return digits >= _FEWEST_DIGITS or "@" in word or (len(word) >= _LONG_CODE and mixed)


def _names(text: str) -> Iterator[str]:
    """Capitalised words side by side that the text has nowhere in lower case.

    A second net under the gate's own finder of names, and a coarse one.
    """
    lower = {word for word in _WORD.findall(text) if word.islower()}
    for found in _SIDE_BY_SIDE.finditer(text):
        yield "".join(found.groups())
        # The first word of a sentence is capitalised for its place.
        begins = text[: found.start()].rstrip(" \t\"'(")[-1:] in ("", "\n", ".", "!", "?")
        words = found.groups()[1:] if begins else found.groups()
        yield from (word for word in words if word.lower() not in lower)


def _squeeze(text: str) -> str:
    """Letters and digits alone, lower-case, accents dropped."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
    return _NOISE.sub("", text.casefold().translate(_LEET))


def _plain_words(text: str) -> list[str]:
    words = _WORD.findall(text)
    if len(words) < _RUN_WORDS:
        return []
    return [squeezed for word in words if (squeezed := _squeeze(word))]


def _windows(squeezed: str, length: int) -> Iterator[str]:
    """All pieces of that length, forwards and backwards."""
    for at in range(len(squeezed) - length + 1):
        part = squeezed[at : at + length]
        yield from (part, part[::-1])


def _runs(words: list[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(_RUN_WORDS)), strict=False)


def _readings(text: str, depth: int) -> Iterator[str]:
    """The text as it is, and as somebody who knows the trick would read it."""
    yield text
    words = [word.casefold() for word in _WORD.findall(text)]
    if any(word in _DIGIT_WORDS for word in words):
        yield " ".join(_DIGIT_WORDS.get(word, word) for word in words)
    yield "".join(word[0] for word in words)
    yield "".join(word[-1] for word in words)
    yield "\n".join(line.strip()[:1] for line in text.splitlines())
    yield codecs.encode(text, "rot13")
    if depth == 0:
        return
    if "%" in text:
        yield from _readings(unquote(text), depth - 1)
    for decoded in _decoded(text):
        yield from _readings(decoded, depth - 1)


def _decoded(text: str) -> Iterator[str]:
    for pattern, kind in _ENCODED:
        for found in pattern.finditer(text):
            for data in _decode(found[0], kind):
                plain = data.decode("utf-8", errors="replace")
                # Words that only look encoded become bytes that are no text.
                if 2 * sum(map(_is_text, plain)) >= len(plain):
                    yield plain


def _is_text(letter: str) -> bool:
    return letter != "\ufffd" and (letter.isprintable() or letter.isspace())


def _decode(run: str, kind: str) -> Iterator[bytes]:
    if kind == "base64":
        body = run.rstrip("=").replace("-", "+").replace("_", "/")
        for start in range(4):  # the run may begin within a group
            part = body[start:]
            part = part[: len(part) - (len(part) % 4 == 1)]
            try:
                yield base64.b64decode(part + "=" * (-len(part) % 4))
            except binascii.Error:
                continue
        return
    if kind == "hex":
        yield bytes.fromhex("".join(filter(str.isalnum, run)))
        return
    base = 2 if kind == "binary" else 10
    values = [int(part, base) for part in re.findall(r"[01]{8}|\d+" if base == 2 else r"\d+", run)]
    yield bytes(value for value in values if value < 256)
