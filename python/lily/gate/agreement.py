"""Where the rules and the neural reader speak of the same characters, who is right.

This file owns what the rules know better: numbers have a form, and technical text has numbers that
are nobody's. It takes away guesses of the reader and never a finding of the rules. It knows no
policy.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from lily.gate.findings import Category, Finding
from lily.gate.rules.government import SAMPLE_SSN
from lily.gate.rules.guards import zones

SURE = 0.9  # confidence of a rule's number, from which the reader's name for it does not count
READABLE = 0.8  # confidence from which a guess counts in a script that the reader has not learned
# Written with digits, whatever else is in them.
_NUMBERS = frozenset(
    {
        Category.PHONE,
        Category.IP_ADDRESS,
        Category.PAYMENT_CARD,
        Category.IBAN,
        Category.BANK_ACCOUNT,
        Category.GOVERNMENT_ID,
        Category.PASSPORT,
        Category.DRIVING_LICENSE,
        Category.HEALTH_ID,
        Category.CASE_NUMBER,
        Category.VEHICLE_ID,
        Category.OTHER_ID,
    }
)
_TECHNICAL = _NUMBERS | {Category.SECRET, Category.LICENSE_PLATE, Category.AMOUNT}
_FORMAL = _TECHNICAL | {Category.EMAIL}
_DIGIT = re.compile(r"\d")
_VALUE = re.compile(r"\d|\w[ ]?@[ ]?\w")  # what makes a number, or an address, of the rest
_RATIO = re.compile(r"\d:\d")
_IDENTIFIER = re.compile(r"[a-z]{1,32}(?:_[a-z]{1,32}){1,8}")


def plausible(text: str, guesses: Sequence[Finding], by_rules: Iterable[Finding]) -> list[Finding]:
    """The reader's findings without those that the rules know better, in their order.

    Dropped are: a number in technical text; a number without a digit, or whose form it cannot have;
    a sample; what a sure rule has found too, where nothing of weight is left over; and an unsure
    guess in a script that the reader has not learned.
    """
    guesses = [one for one in guesses if one.confidence >= READABLE or _is_latin(one, text)]
    if not any(one.category in _FORMAL for one in guesses):
        return guesses
    technical = zones(text)
    starts = [start for start, _ in technical]
    taken = bytearray(len(text))
    for one in by_rules:
        if one.category in _FORMAL and one.confidence >= SURE:
            taken[one.start : one.end] = b"\1" * (one.end - one.start)

    def holds(one: Finding) -> bool:
        if one.category not in _FORMAL:
            return True
        at = bisect_right(starts, one.start) - 1
        if one.category in _TECHNICAL and at >= 0 and one.end <= technical[at][1]:
            return False
        return _has_its_form(one, text) and not _is_known(one, text, taken)

    return list(filter(holds, guesses))


def _has_its_form(one: Finding, text: str) -> bool:
    value = text[one.start : one.end]
    if one.category is Category.SECRET:
        return _IDENTIFIER.fullmatch(value) is None
    if one.category is Category.IP_ADDRESS:
        return any(_is_public(word) for word in re.split(r"[^\w.:]+", value))
    if one.category is Category.PHONE and _RATIO.search(value):
        return False
    if one.category in _NUMBERS and not _DIGIT.search(value):
        return False
    return value not in SAMPLE_SSN


def _is_public(word: str) -> bool:
    """Whether it is an address outside of all private networks. Masks begin with 255."""
    try:
        address = ipaddress.ip_address(word.rstrip(".:"))
    except ValueError:
        return False
    return address.is_global or (address.is_reserved and address.packed[0] != 255)


def _is_latin(one: Finding, text: str) -> bool:
    """Whether there is a letter of the Latin script in it, or no letter at all."""
    letters = [each for each in text[one.start : one.end] if each.isalpha()]
    return not letters or any("LATIN" in unicodedata.name(each, "") for each in letters)


def _is_known(one: Finding, text: str, taken: bytearray) -> bool:
    """Whether a sure rule has found it, and the reader adds no number and no address to it."""
    left = "".join(" " if taken[at] else text[at] for at in range(*one.span))
    return any(taken[one.start : one.end]) and _VALUE.search(left) is None
