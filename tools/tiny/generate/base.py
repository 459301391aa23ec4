"""Shared vocabulary of the generators: what a document is, and a little template language.

Owns `Doc`, message constructors, `fill` (templates with slots and alternatives) and English
helpers (articles, plurals, number words). Knows nothing about any single skill.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"

Message = dict[str, Any]
Rng = random.Random


@dataclass
class Doc:
    """One training document: a conversation, or plain `text` when there are no messages."""

    messages: list[Message] = field(default_factory=list)
    tools: list[dict[str, Any]] | None = None
    text: str | None = None
    kind: str = ""
    meta: dict[str, Any] = field(default_factory=dict)


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def system(content: str) -> Message:
    return {"role": "system", "content": content}


def assistant(content: str, think: str = "", calls: list[dict[str, Any]] | None = None) -> Message:
    """An answer. `think` is a short trace; `mix.py` decides whether it is shown."""
    message: Message = {"role": "assistant", "content": content, "reasoning_content": think}
    if calls:
        message["tool_calls"] = calls
    return message


def tool_result(content: str) -> Message:
    return {"role": "tool", "content": content}


def qa(question: str, answer: str, think: str = "", kind: str = "") -> Doc:
    return Doc([user(question), assistant(answer, think)], kind=kind)


_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")


def fill(rng: Rng, template: str, slots: dict[str, str] | None = None) -> str:
    """Expand `[a|b]` (may nest) to one alternative, then `{name}` to the slot's text."""
    while True:
        found = _CHOICE.search(template)
        if not found:
            break
        chosen = rng.choice(found.group(1).split("|"))
        template = template[: found.start()] + chosen + template[found.end() :]
    if slots:
        template = _SLOT.sub(lambda m: slots.get(m.group(1), m.group(0)), template)
    return template


@cache
def lines(name: str) -> tuple[str, ...]:
    """Non-empty lines of data/NAME that are not comments."""
    text = (DATA / name).read_text(encoding="utf-8")
    return tuple(s for s in (x.strip() for x in text.splitlines()) if s and not s.startswith("#"))


def sentence(text: str) -> str:
    """First letter upper case, one full stop at the end unless it already ends in one."""
    text = cap(text.strip())
    return text if text.endswith((".", "!", "?", '."', '!"', '?"')) else text + "."


def cap(text: str) -> str:
    return text[:1].upper() + text[1:]


def lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


# Words whose spelling hides the sound that picks the article.
_AN = ("hour", "honest", "heir", "honor")
_A = ("uni", "use", "usu", "eur", "ewe", "one", "once", "uk", "ukulele", "unicorn")


def article(noun: str) -> str:
    """`noun` with its indefinite article."""
    word = noun.lower()
    vowel = word[:1] in "aeiou"
    if word.startswith(_AN):
        vowel = True
    elif word.startswith(_A) and not word.startswith("unin"):
        vowel = False
    return ("an " if vowel else "a ") + noun


_IRREGULAR = {
    "mouse": "mice", "sheep": "sheep", "wolf": "wolves", "knife": "knives", "leaf": "leaves",
    "child": "children", "man": "men", "woman": "women", "foot": "feet", "tooth": "teeth",
    "goose": "geese", "fish": "fish", "deer": "deer", "person": "people", "loaf": "loaves",
    "shelf": "shelves", "scarf": "scarves", "life": "lives", "wife": "wives", "half": "halves",
    "thief": "thieves", "ox": "oxen", "snowman": "snowmen", "piano": "pianos", "photo": "photos",
    "calf": "calves", "fireman": "firemen", "radio": "radios", "kangaroo": "kangaroos",
    "moose": "moose", "salmon": "salmon", "scissors": "scissors", "squid": "squid",
}  # fmt: skip


def plural(noun: str) -> str:
    """Plural of the last word of `noun`."""
    head, _, last = noun.rpartition(" ")
    if last in _IRREGULAR:
        out = _IRREGULAR[last]
    elif last.endswith("y") and last[-2:-1] not in "aeiou":
        out = last[:-1] + "ies"
    elif last.endswith(("s", "x", "ch", "sh", "z")) or last in ("potato", "tomato", "hero", "echo"):
        out = last + "es"
    else:
        out = last + "s"
    return f"{head} {out}" if head else out


_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def number_word(n: int) -> str:
    """English words for 0 <= n <= 9999."""
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10 - 2] + (f"-{_ONES[n % 10]}" if n % 10 else "")
    if n < 1000:
        return f"{_ONES[n // 100]} hundred" + (f" and {number_word(n % 100)}" if n % 100 else "")
    rest = n % 1000
    return f"{number_word(n // 1000)} thousand" + (f" {number_word(rest)}" if rest else "")


def join_words(items: list[str], last: str = "and") -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


def casual(rng: Rng, question: str) -> str:
    """Sometimes the careless spelling of a person at a keyboard."""
    x = rng.random()
    if x < 0.08:
        return question[0].lower() + question[1:].rstrip("?.")
    if x < 0.12:
        return question.lower()
    if x < 0.16:
        return fill(rng, "[Can you help me?|Hi!|Hello!|One question:|Quick question:] ") + (
            question
        )
    return question
