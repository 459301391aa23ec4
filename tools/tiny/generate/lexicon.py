"""Word lists of the generators: names, animals with their traits, things, places, foods, jobs.

Owns access to the hand-written lists in `data/` and to `lexicon.json` (words, glosses and relations
drawn from WordNet by `sources.py`). Knows no template and no skill.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from .base import DATA, lines


def _words() -> dict[str, list[str]]:
    """The sections of words.txt."""
    out: dict[str, list[str]] = {}
    current: list[str] = []
    for row in lines("words.txt"):
        if row.startswith("= "):
            current = out.setdefault(row[2:], [])
        else:
            parts = row.split("|" if "|" in row else ",")
            current += [word.strip() for word in parts if word.strip()]
    return out


def _table(name: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.split("|")] for row in lines(name)]


def _pairs(name: str) -> dict[str, str]:
    return {row[0]: row[1] for row in _table(name)}


WORDS = _words()
GIRLS, BOYS = WORDS["GIRLS"], WORDS["BOYS"]
MORE_GIRLS, MORE_BOYS = WORDS["MORE_GIRLS"], WORDS["MORE_BOYS"]


def _made_up() -> tuple[list[str], list[str]]:
    """Names that nobody has: a name must be copied from the prompt, not recognised."""
    heads, middles = WORDS["NAME_HEADS"], WORDS["NAME_MIDDLES"]
    girls, boys = [], []
    for i, head in enumerate(heads):
        for j, middle in enumerate(middles):
            if (i * 7 + j * 3) % 2:
                girls.append(head + middle + ("a", "e", "ia", "y")[(i + j) % 4])
            else:
                boys.append(head + middle + ("o", "us", "", "an")[(i + j) % 4])
    return girls, boys


NEW_GIRLS, NEW_BOYS = _made_up()
GIRL_SET = frozenset(GIRLS + MORE_GIRLS + NEW_GIRLS)
# Familiar names come more often; the rest makes copying worth learning.
NAMES = (GIRLS + BOYS) * 6 + (MORE_GIRLS + MORE_BOYS) * 6 + NEW_GIRLS + NEW_BOYS
STORY_NAMES = GIRLS + BOYS + MORE_GIRLS + MORE_BOYS
BY_INITIAL = {
    letter: [n for n in STORY_NAMES if n[0].lower() == letter]
    for letter in "abcdefghijklmnopqrstuvwxyz"
}


@dataclass(frozen=True)
class Animal:
    """What a small child knows about an animal."""

    name: str
    group: str
    home: str
    food: str
    legs: int
    sound: str
    baby: str


def _animals() -> dict[str, Animal]:
    out = {}
    for name, group, home, food, legs, sound, baby in _table("animals.txt"):
        out[name] = Animal(name, group, home, food, int(legs), sound, baby)
    return out


ANIMALS = _animals()
THING_LIST, ADJECTIVES, COLORS = WORDS["THINGS"], WORDS["ADJECTIVES"], WORDS["COLORS"]
FOODS, MASS_FOODS = WORDS["FOODS"], WORDS["MASS_FOODS"]
FANTASY, OBJECT_HEROES = WORDS["FANTASY"], WORDS["OBJECT_HEROES"]
TRAITS, ADJECTIVES_OF_CHARACTER = WORDS["TRAITS"], WORDS["ADJECTIVES_OF_CHARACTER"]
WEATHER, CITIES, HOBBIES = WORDS["WEATHER"], WORDS["CITIES"], WORDS["HOBBIES"]
DAYS, MONTHS = WORDS["DAYS"], WORDS["MONTHS"]
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
PLACES: dict[str, str] = _pairs("places.txt")
JOBS: dict[str, str] = _pairs("jobs.txt")
# Where somebody is likely to be: stories choose from here most of the time.
HABITATS: dict[str, str] = _pairs("habitats.txt")


@lru_cache(maxsize=1)
def lexicon() -> dict[str, Any]:
    """Words from WordNet (see `sources.py`); LILY_TINY_LEXICON may name another file."""
    path = os.environ.get("LILY_TINY_LEXICON") or DATA / "lexicon.json"
    return json.loads(Path(path).read_text(encoding="utf-8"))


def habitat(kind: str) -> list[str]:
    """Places that suit a hero, or all of them."""
    group = ANIMALS[kind].group if kind in ANIMALS else kind
    places = HABITATS.get(kind) or HABITATS.get(group)
    if kind in ANIMALS:
        home = [p for p in PLACES if p in ANIMALS[kind].home]
        if home:
            return home
        if "sea" in ANIMALS[kind].home:
            return ["beach", "island", "harbor"]
        if "savanna" in ANIMALS[kind].home:
            return ["valley", "field", "river"]
    return places.split() if places else list(PLACES)


def pronouns(name: str) -> tuple[str, str, str]:
    return ("she", "her", "her") if name in GIRL_SET else ("he", "him", "his")


_ONSETS = ("b", "br", "c", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m",
           "n", "p", "pl", "qu", "r", "s", "sh", "sk", "st", "t", "th", "tr", "v", "w", "y", "z",
           "zh", "", "sv", "gl", "kr", "ts", "sc", "wh", "ph", "sp")  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "a", "e", "i", "o", "ai", "ee", "ou", "ie", "ua", "oo", "y",
           "ea", "au", "io")  # fmt: skip
_CODAS = ("", "", "", "", "n", "r", "l", "s", "m", "t", "k", "nd", "rt", "ll", "ss", "x", "ng",
          "rk", "st", "p", "ck", "th", "nz", "lm")  # fmt: skip
_EASY_CODAS = ("", "", "", "", "n", "r", "l", "s", "m", "t", "ll", "ss")
_TOWN_ENDS = ("ville", "berg", "ton", "stad", "burg", "ford", "ham", "dorf", "mouth", "field",
              "haven", "port", "illa", "ovo", "ada", "ona", "ingen", "shire", "pur", "grad", "wick",
              "by", "ia", "ara", "iz")  # fmt: skip


def syllables(rng: Random, count: int) -> str:
    """A word that nobody has seen; its pieces differ, so that it must be copied."""
    if rng.random() < 0.6:  # easy to say: ba, nel, tori
        return "".join(rng.choice("bcdfghjklmnpqrstvwxyz") + rng.choice("aeiouaeioy")
                       + rng.choice(_EASY_CODAS) for _ in range(count))  # fmt: skip
    return "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)
                   for _ in range(count))  # fmt: skip


@lru_cache(maxsize=1)
def _real() -> tuple[str, ...]:
    words = [w["word"] for w in lexicon()["words"]]
    places = [w for c in lexicon()["countries"] for w in (c["name"], c["capital"]) if w.isalpha()]
    return tuple(w.lower() for w in [*words, *places * 4, *set(NAMES), *CITIES] if len(w) > 3)


def blend(rng: Random) -> str:
    """The head of one real word and the tail of another."""
    a, b = rng.choice(_real()), rng.choice(_real())
    return a[: rng.randint(2, max(2, len(a) - 1))] + b[-rng.randint(2, max(2, len(b) - 2)) :]


def strange_name(rng: Random) -> str:
    if rng.random() < 0.35:
        return blend(rng)[:10].capitalize()
    return syllables(rng, rng.choice([1, 2, 2, 2, 3])).capitalize()


def strange_town(rng: Random) -> str:
    if rng.random() < 0.3:
        name = blend(rng)[:12].capitalize()
    elif rng.random() < 0.45:
        name = (syllables(rng, rng.choice([1, 1, 2])) + rng.choice(_TOWN_ENDS)).capitalize()
    else:
        name = syllables(rng, rng.choice([2, 2, 3, 3, 4])).capitalize()
    x = rng.random()
    if x < 0.1:
        return (
            rng.choice(["New ", "San ", "Port ", "Saint ", "Lake ", "East ", "El ", "La "]) + name
        )
    return name


def any_name(rng: Random) -> str:
    """A person's name, known or not."""
    return strange_name(rng) if rng.random() < 0.35 else rng.choice(NAMES)


def any_town(rng: Random) -> str:
    """A town: well known, a capital, or made up."""
    x = rng.random()
    if x < 0.3:
        return rng.choice(CITIES)
    if x < 0.5:
        return rng.choice(lexicon()["countries"])["capital"]
    return strange_town(rng)
