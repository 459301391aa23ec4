"""Folding: characters as a detector wants them, whatever script or width they were typed in.

This file owns the folds: full-width and other compatibility forms, digits of every script, dashes,
invisible characters, and look-alikes inside addresses and numbers. It knows no recogniser. Source:
the Unicode character database that Python carries.
"""

from __future__ import annotations

import re
import unicodedata

from lily.gate.readings import Edit, Reading


class _Fold(dict[int, int]):
    """One character for one: what `str.translate` puts for each, worked out on first sight."""

    def __missing__(self, code: int) -> int:
        self[code] = folded = _fold(chr(code))
        return folded


def _fold(character: str) -> int:
    if character.isascii():
        return ord(character)
    digit = unicodedata.digit(character, None) if character.isdecimal() else None
    if digit is not None:
        return ord("0") + digit
    category = unicodedata.category(character)
    if category == "Pd" or character in "\u2212\u2043\u02d7":
        return ord("-")
    if category == "Zs":
        return ord(" ")
    if character in "\u2018\u2019\u02bc\u2032\u02cb\u02ca":
        return ord("`") if character == "\u02cb" else ord("'")
    compatible = unicodedata.normalize("NFKC", character)
    if len(compatible) == 1 and category[0] not in "M":
        return ord(compatible)
    return ord(character)


_FOLD = _Fold()

# Format characters (Cf), fillers and selectors: none of them shows, all of them split words.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_MARKS = "\u0300-\u036f"
_CHANGED_LENGTH = re.compile(
    f"[{_INVISIBLE}]{{1,65536}}|[A-Za-z\u0370-\u04ff][{_MARKS}]{{1,8}}|[\ufb00-\ufb06\u2474-\u24b5]"
)

# Letters of other scripts that look like one of ours, one for one.
_LOOK_ALIKES = str.maketrans(
    "аеоорсухіјѕԁһӏқԛԝɡвкмнтАВЕКМНОРСТХУІЈЅԌԚԜαιονρυκΑΒΕΖΗΙΚΜΝΟΡΤΥΧօհոսցƅıℓ",
    "aeoopcyxijsdhlkqwgbkmhtABEKMHOPCTXYIJSGQWaiovpukABEZHIKMNOPTYXohnugbil",
)
_FOREIGN = re.compile("[" + "".join(chr(code) for code in _LOOK_ALIKES) + "]")
_TOKEN = re.compile(r"[^\s,;<>()\[\]{}\"']{1,4096}")
_ASCII_LETTER = re.compile("[A-Za-z]")
_ADDRESS_LIKE = re.compile(r"@|://|\d{2}|[a-z0-9]\.[a-z]|[_-]\w", re.IGNORECASE)


def _unmask_look_alikes(text: str) -> str:
    """Fold look-alikes inside addresses, links and codes; other words stay as they are."""

    def fold(match: re.Match[str]) -> str:
        token = match.group()
        if not _FOREIGN.search(token) or not _ADDRESS_LIKE.search(token):
            return token
        folded = token.translate(_LOOK_ALIKES)
        mixed = _ASCII_LETTER.search(token) is not None
        return folded if mixed or folded.isascii() else token

    return _TOKEN.sub(fold, text)


def _length_edits(text: str) -> list[Edit]:
    edits: list[Edit] = []
    for match in _CHANGED_LENGTH.finditer(text):
        part = match.group()
        kept = "" if re.match(f"[{_INVISIBLE}]", part) else unicodedata.normalize("NFKC", part)
        if kept != part:
            edits.append((match.start(), match.end(), kept))
    return edits


def folded(reading: Reading) -> Reading:
    """A reading with its characters folded; ASCII text stays as it is."""
    if reading.text.isascii():
        return reading
    shorter = reading.edited(reading.name, _length_edits(reading.text)) or reading
    text = shorter.text.translate(_FOLD)
    if _FOREIGN.search(text):
        text = _unmask_look_alikes(text)
    return Reading(reading.name, text, reading.original, shorter.maps)
