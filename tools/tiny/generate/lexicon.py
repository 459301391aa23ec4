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
            current += [word.strip() for word in row.split(",") if word.strip()]
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
