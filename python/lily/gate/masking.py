"""Placeholders in place of private values, so that a text can leave and its answer be made whole.

This file owns the form of a placeholder, ``[PERSON_1_k3vt]``, and the vault that knows what each
stands for: one vault for a conversation and a destination, in memory alone. Its tag is drawn at
random, so nobody can guess a placeholder, and text that looks like one gets one of its own. It
knows no detector and no rule.

One value is one number: ``4111 1111`` and ``4111-1111`` are ``_1`` and ``_1B``, as are a full name
and the short one, so that a reader sees that they belong together and yet each returns as it was
written.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from lily.gate.facts import VALIDATED
from lily.gate.findings import Category, Finding, Mask, Source
from lily.gate.patterns import joined, plain

# Neither vowels, so that no word comes of it, nor characters that are taken for each other.
_TAG_LETTERS = "bcdfghjkmnpqrstvwxz23456789"
_TAG_CHARS = 4
_NOISE = re.compile(r"[^A-Z0-9]+")
BODY_CHARS = 80
# What a model may make of a placeholder: other case, spaces, escapes and emphasis in it.
BODY = rf"[A-Za-z0-9 _\\*`-]{{1,{BODY_CHARS}}}"
_SHAPED = re.compile(rf"\[({BODY})\]")
_REMEMBERED = (Category.PERSON, Category.USERNAME, Category.ADDRESS)
_MIN_MENTION_CHARS = 3
_MAX_NAME_WORDS = 5
_MENTION_CONFIDENCE = 0.9
LITERAL = "TEXT"
"""What stands for text that looks like a placeholder."""


def canonical(body: str) -> str:
    """What is between the brackets, without what models change in it."""
    return _NOISE.sub("", body.upper())


@dataclass
class _Entity:
    """One value in all its spellings."""

    number: int
    words: frozenset[str]
    spellings: dict[str, str] = field(
        default_factory=dict
    )  # spelling, or its digest -> placeholder


class Vault:
    """What the placeholders of one conversation with one destination stand for. Thread-safe."""

    def __init__(self, tag: str | None = None) -> None:
        self.tag = tag or "".join(secrets.choice(_TAG_LETTERS) for _ in range(_TAG_CHARS))
        self._placeholders = re.compile(rf"\[[A-Z_]+_[0-9]+[A-Z]*_{self.tag}\]")
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._entities: dict[str, list[_Entity]] = {}
        self._by_value: dict[tuple[str, str], _Entity] = {}
        self._by_word: dict[str, list[_Entity]] = {}
        self._by_name: dict[frozenset[str], list[_Entity]] = {}
        self._restorable: dict[str, str] = {}

    def blanked(self, text: str, blank: str) -> str:
        """A masked text in which each placeholder is a run of ``blank``, as long as it was."""
        return self._placeholders.sub(lambda found: blank * len(found[0]), text)

    def original(self, body: str) -> str | None:
        """The original of what stands between two brackets, in any of its forms."""
        return self._restorable.get(canonical(body))

    def begins(self, body: str) -> bool:
        """Whether a placeholder of this vault could begin like this."""
        begun = canonical(body)
        with self._lock:
            return any(key.startswith(begun) for key in self._restorable)

    def is_own(self, body: str) -> bool:
        """Whether this is a placeholder of this vault, or could become one later."""
        found = canonical(body)
        return found.endswith(self.tag.upper()) and any(
            re.match(rf"{name}[0-9]+[A-Z]*\Z", found[: -len(self.tag)]) for name in _NAMES
        )

    def mentions(self, text: str) -> Iterator[Finding]:
        """Where a text has names again that an earlier text of the conversation had."""
        with self._lock:
            known = [
                (category, spelling)
                for category in _REMEMBERED
                for entity in self._entities.get(category.name, [])
                for spelling in entity.spellings
                if len(spelling) >= _MIN_MENTION_CHARS
            ]
        for category, spelling in known:
            start = text.find(spelling)
            while start >= 0:
                end = start + len(spelling)
                if not (joined(text, start) or joined(text, end)):
                    yield Finding(start, end, category, _MENTION_CONFIDENCE, "vault.mention")
                start = text.find(spelling, end)

    def placeholder(self, value: str, category: Category | None) -> str:
        """The placeholder of a value; the same for the same value. None is for literal text."""
        name = LITERAL if category is None else category.name
        secret = category is not None and category.is_secret
        # Of a secret not even the vault keeps more than a keyed digest.
        spelling = self._digest(value) if secret else value
        with self._lock:
            entity = self._entity(name, value, category, spelling)
            if spelling not in entity.spellings:
                variant = _letters(len(entity.spellings))
                made = f"[{name}_{entity.number}{variant}_{self.tag}]"
                entity.spellings[spelling] = made
                if not secret:
                    self._restorable[canonical(made)] = value
            return entity.spellings[spelling]

    def _entity(self, name: str, value: str, category: Category | None, spelling: str) -> _Entity:
        secret = category is not None and category.is_secret
        key = spelling if secret or category is None else _same(value, category)
        found = self._by_value.get((name, key))
        words = frozenset(plain(value).split()) if category is Category.PERSON else frozenset()
        if found is None and words:
            found = self._person(words)
        if found is None:
            known = self._entities.setdefault(name, [])
            found = _Entity(len(known) + 1, frozenset())
            known.append(found)
        if len(words) > len(found.words):
            self._rename(found, words)
        self._by_value[name, key] = found
        return found

    def _rename(self, entity: _Entity, words: frozenset[str]) -> None:
        """Know an entity by a longer name."""
        if entity.words:
            self._by_name[entity.words].remove(entity)
        self._by_name.setdefault(words, []).append(entity)
        for new in words - entity.words:
            self._by_word.setdefault(new, []).append(entity)
        entity.words = words

    def _person(self, words: frozenset[str]) -> _Entity | None:
        """Whose full or short name this is; nobody's where it could be two people's."""
        # Longer names have every word of this one; look where the fewest are.
        rarest = min((self._by_word.get(one, []) for one in words), key=len)
        fits = {id(one): one for one in rarest if words <= one.words}
        for count in range(1, len(words) if len(words) <= _MAX_NAME_WORDS else 2):
            for part in combinations(words, count):
                fits |= {id(one): one for one in self._by_name.get(frozenset(part), [])}
        return next(iter(fits.values())) if len(fits) == 1 else None

    def _digest(self, value: str) -> str:
        return hmac.new(
            self._key, value.encode("utf-8", "surrogatepass"), hashlib.sha256
        ).hexdigest()


_NAMES = sorted({canonical(name) for name in (*(one.name for one in Category), LITERAL)})


@dataclass(frozen=True)
class Masked:
    """A text with placeholders; ``mapping`` has the originals of those that may be restored."""

    text: str
    masks: tuple[Mask, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict, repr=False)


def mask(text: str, findings: Iterable[Finding], vault: Vault) -> Masked:
    """The text with placeholders for these findings.

    Findings may overlap: of two, the weightier keeps its whole span and the other what is left.
    """
    parts, masks, mapping, done = [], [], {}, 0
    for start, end, finding in _pieces(text, findings, vault):
        value = text[start:end]
        made = vault.placeholder(value, None if finding is None else finding.category)
        parts += [text[done:start], made]
        restorable = finding is None or not finding.category.is_secret
        if finding is not None:
            masks.append(Mask(replace(finding, start=start, end=end), made, restorable))
        if restorable:
            mapping[made] = value
        done = end
    return Masked("".join([*parts, text[done:]]), tuple(masks), mapping)


def _pieces(
    text: str, findings: Iterable[Finding], vault: Vault
) -> list[tuple[int, int, Finding | None]]:
    """Spans without overlap, in order; those without finding only look like placeholders."""
    taken = bytearray(len(text))
    pieces: list[tuple[int, int, Finding | None]] = []
    for finding in sorted(findings, key=_weight, reverse=True):
        for start, end in _free(taken, *finding.span):
            start += len(text[start:end]) - len(text[start:end].lstrip())
            end = start + len(text[start:end].rstrip())
            if any(char.isalnum() for char in text[start:end]):
                pieces.append((start, end, finding))
                taken[start:end] = b"\1" * (end - start)
    for shaped in _SHAPED.finditer(text):
        if vault.is_own(shaped[1]) and not any(taken[shaped.start() : shaped.end()]):
            pieces.append((*shaped.span(), None))
    return sorted(pieces, key=lambda piece: piece[0])


def _weight(finding: Finding) -> tuple[bool, bool, int, bool, float]:
    """Secrets first, then what a rule has validated; of equal spans the rule's, not the guess."""
    by_rule = finding.source is not Source.NEURAL
    validated = by_rule and finding.confidence >= VALIDATED
    length = finding.end - finding.start
    return finding.category.is_secret, validated, length, by_rule, finding.confidence


def _free(taken: bytearray, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Parts of a span that nobody has taken."""
    while start < end:
        start = taken.find(0, start, end)
        if start < 0:
            return
        stop = taken.find(1, start, end)
        stop = end if stop < 0 else stop
        yield start, stop
        start = stop


def _same(value: str, category: Category) -> str:
    """Equal for spellings of one value."""
    folded = plain(value)
    if category in (Category.PERSON, Category.ADDRESS, Category.ORGANIZATION, Category.LOCATION):
        return folded
    dense = re.sub(r"[\s().\-/]", "", folded)
    return dense or folded


def _letters(count: int) -> str:
    """ "" for 0, then B to Z, BA, ..."""
    made = ""
    while count > 0:
        count, rest = divmod(count, 26)
        made = chr(ord("A") + rest) + made
    return made
