"""Fills templates: alternatives, lexicon words, and slots whose characters become labelled spans.

This file owns the template language and knows no values and no labels:
`«a|b|»` one of them (they nest) · `<word>` a phrase of the lexicon · `{slot}` a value with its
label ·
`{slot1}` to `{slot9}` the same value, or the same person's, each time within one text · `\\n` a
new line.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path

Span = tuple[int, int, str]
Slots = Callable[[str, random.Random, dict[str, object]], tuple[str, "str | None"]]

_INNER = re.compile(r"«([^«»]*)»")
_WORD = re.compile(r"<([a-z_]+)>")
_SLOT = re.compile(r"\{([a-z_]+[1-9]?)\}")


def read_templates(path: Path) -> list[tuple[str, str]]:
    """(head, template) of every line; a line `@ head` sets the head of those that follow."""
    head, out = "", []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("@ "):
            head = line[2:].strip()
        elif line.strip() and not line.startswith("# "):
            out.append((head, line.replace("\\n", "\n").replace("\\t", "\t")))
    return out


def read_lexicon(path: Path) -> dict[str, list[str]]:
    """Lines `name: a | b | c`; a name may come again and grows."""
    lexicon: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if ":" in line and not line.startswith("#"):
            name, _, words = line.partition(":")
            entries = [word.strip() for word in words.split(" | ")]
            lexicon.setdefault(name.strip(), []).extend(word for word in entries if word)
    return lexicon


def expand(template: str, lexicon: Mapping[str, list[str]], rng: random.Random) -> str:
    """The template with its alternatives and words chosen, its slots left."""
    text = template
    for _ in range(8):
        before = text
        while "«" in text:
            text, changed = _INNER.subn(lambda m: rng.choice(m.group(1).split("|")), text)
            if not changed:
                raise ValueError(f"unbalanced « » in {template!r}")
        text = _WORD.sub(
            lambda m: rng.choice(lexicon[m.group(1)]) if m.group(1) in lexicon else m.group(0), text
        )
        if text == before:
            return text
    raise ValueError(f"{template!r} does not come to an end")


def fill(text: str, slots: Slots, rng: random.Random) -> tuple[str, list[Span]]:
    """The text with its slots filled, and the labelled spans."""
    memory: dict[str, object] = {}
    parts: list[str] = []
    spans: list[Span] = []
    length = end = 0
    for match in _SLOT.finditer(text):
        value, label = slots(match.group(1), rng, memory)
        before = text[end : match.start()]
        start = length + len(before)
        parts += (before, value)
        length = start + len(value)
        if label:
            spans.append((start, length, label))
        end = match.end()
    parts.append(text[end:])
    return "".join(parts), spans
