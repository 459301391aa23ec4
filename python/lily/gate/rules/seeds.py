"""Seed phrases of wallets: twelve to twenty-four words of a BIP-39 list.

This file owns how runs of such words are found; the lists are those of `mnemonic`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from itertools import pairwise

from mnemonic import Mnemonic

from lily.gate.categories import Category
from lily.gate.findings import Finding
from lily.gate.rules.scan import Scan

_LENGTHS = (24, 21, 18, 15, 12)
_LANGUAGES = ("english", "spanish", "french", "italian", "portuguese", "czech")
# Words of the lists are three to eight letters long; numbers may stand before them.
_RUN = re.compile(
    r"(?<![^\W\d_])(?:[^\W\d_]{3,9}(?:[ \t,;|/\"'-]{1,4}|[ \t,;]{0,3}\r?\n"
    r"[ \t]{0,8})(?:\d{1,2}[.):][ ]{0,2})?){11,63}[^\W\d_]{3,9}(?![^\W\d_])"
)
_WORD = re.compile(r"[^\W\d_]{3,9}")
_CONTEXT = re.compile(
    r"seed|mnemonic|recovery|phrase|wallet|backup words|semilla|wiederherstellung|récupération"
)


@cache
def _places(language: str) -> dict[str, int]:
    """Each word of a list and its number."""
    return {word: number for number, word in enumerate(Mnemonic(language).wordlist)}


def _holds(numbers: list[int]) -> bool:
    """The checksum of BIP-39: the phrase's last bits begin the SHA-256 of those before."""
    bits = 0
    for number in numbers:
        bits = bits << 11 | number
    length = len(numbers) // 3  # bits of the checksum, one for 32 of entropy
    entropy = (bits >> length).to_bytes(4 * length, "big")
    return sha256(entropy).digest()[0] >> (8 - length) == bits & ((1 << length) - 1)


def _checked(numbers: list[int]) -> tuple[int, int] | None:
    """The longest part of a stretch whose checksum holds."""
    for length in _LENGTHS:
        for low in range(len(numbers) - length + 1):
            if _holds(numbers[low : low + length]):
                return low, low + length
    return None


def _stretches(words: list[str], known: dict[str, int]) -> Iterator[tuple[int, int]]:
    """Ranges of at least twelve listed words in a row."""
    outside = [-1, *(n for n, word in enumerate(words) if word not in known), len(words)]
    for before, after in pairwise(outside):
        if after - before - 1 >= _LENGTHS[-1]:
            yield before + 1, after


def seed_phrases(scan: Scan) -> Iterator[Finding]:
    """Runs of listed words whose checksum holds, or with a word about wallets before them."""
    for run in _RUN.finditer(scan.lower):
        found = list(_WORD.finditer(scan.lower, run.start(), run.end()))
        words = [match.group() for match in found]
        named = _CONTEXT.search(scan.before(run.start(), 96)) is not None
        for language in _LANGUAGES:
            known = _places(language)
            for first, last in _stretches(words, known):
                part = _checked([known[word] for word in words[first:last]])
                if part is None and not named:
                    continue
                low, high = (first + part[0], first + part[1]) if part else (first, last)
                confidence = 1.0 if part else 0.9
                span = found[low].start(), found[high - 1].end()
                yield Finding(*span, Category.SEED_PHRASE, confidence, "seed.bip39")


RECOGNIZERS = (seed_phrases,)
