"""Other ways to write the same example: case, typos, lost punctuation, other names, company
around it.

This file owns the distortions and moves spans along. It knows no label but `person`.
"""

from __future__ import annotations

import random
from dataclasses import replace

from sources import Example


def _rebuild(example: Example, pieces: list[str]) -> Example:
    """The example with character i replaced by `pieces[i]`."""
    offsets, total = [0], 0
    for piece in pieces:
        total += len(piece)
        offsets.append(total)
    spans = [
        (offsets[a], offsets[b], label) for a, b, label in example.spans if offsets[b] > offsets[a]
    ]
    return replace(example, text="".join(pieces), spans=spans)


def recase(example: Example, rng: random.Random) -> Example:
    """Lower, upper or title case throughout; a text whose length would change stays."""
    text = rng.choice([str.lower, str.lower, str.lower, str.upper, str.title, str.capitalize])(
        example.text
    )
    return replace(example, text=text) if len(text) == len(example.text) else example


def typos(example: Example, rng: random.Random) -> Example:
    """One to three lost, doubled, swapped or wrong letters outside of spans."""
    pieces = list(example.text)
    inside = {i for a, b, _ in example.spans for i in range(a, b)}
    for _ in range(rng.choice([1, 1, 2, 3])):
        i = rng.randrange(max(1, len(pieces) - 1))
        if i + 1 >= len(pieces) or i in inside or i + 1 in inside or not pieces[i].isalpha():
            continue
        roll = rng.random()
        if roll < 0.3:
            pieces[i] = ""
        elif roll < 0.5:
            pieces[i] *= 2
        elif roll < 0.8:
            pieces[i], pieces[i + 1] = pieces[i + 1], pieces[i]
        else:
            pieces[i] = rng.choice("abcdefghijklmnopqrstuvwxyz")
    return _rebuild(example, pieces)


def unpunctuated(example: Example, rng: random.Random) -> Example:
    """Without punctuation outside of spans, as people type on a telephone."""
    inside = {i for a, b, _ in example.spans for i in range(a, b)}
    return _rebuild(
        example,
        ["" if c in ".,!?'\";:" and i not in inside else c for i, c in enumerate(example.text)],
    )


def renamed(example: Example, rng: random.Random, name) -> Example:  # type: ignore[no-untyped-def]
    """Every person under another name, the same one wherever the same string stands."""
    pieces = list(example.text)
    chosen: dict[str, str] = {}
    for a, b, label in example.spans:
        if label != "person":
            continue
        old = example.text[a:b]
        new = chosen.setdefault(old.lower(), name(rng, " " in old.strip()))
        new = (
            new.upper() if old.isupper() and len(old) > 2 else new.lower() if old.islower() else new
        )
        pieces[a:b] = [new] + [""] * (b - a - 1)
    return _rebuild(example, pieces)


def together(parts: list[Example], rng: random.Random) -> Example:
    """Several examples as one text; document labels of the first, what is unmarked of the
    widest."""
    join = rng.choice([" ", "\n", "\n\n", "\n- ", " "])
    text, spans = "", []
    for part in parts:
        if text:
            text += join
        spans += [(a + len(text), b + len(text), label) for a, b, label in part.spans]
        text += part.text
    return replace(parts[0], text=text, spans=spans)
