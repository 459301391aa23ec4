"""The training stream: which kinds of text in which proportion, as windows of token ids and
targets.

This file owns the mixture and the encoding of FORMAT.md. It knows no network. Everything is drawn
from a seeded `random.Random`, so that a worker's stream is fixed by its number.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import augment
import grammar
import numpy as np
import sources
import targets
from labels import SUBJECTS, TOPICS
from sources import Example
from tokenizers import Encoding, Tokenizer
from values import Values

from model import CLS, OVERLAP, SEP, WINDOW

HERE = Path(__file__).parent
INSIDE = WINDOW - 2


@dataclass
class Window:
    """One row for the network: ids, forms and target rows of 128 tokens at most, and document
    labels."""

    ids: np.ndarray
    forms: np.ndarray
    targets: np.ndarray
    topics: tuple[int, ...]
    subject: int


def shape(word: str) -> int:
    """FORMAT.md's shape of a word, 0 to 7."""
    letters = [c for c in word if c.isalpha()]
    digit = any(c.isdigit() for c in word)
    if not letters:
        return 6 if digit else 0
    if digit:
        return 7
    upper = [c.isupper() for c in letters]
    if not any(upper):
        return 1
    if len(letters) == 1:
        return 4
    if all(upper):
        return 3
    return 2 if upper[0] and not any(upper[1:]) else 5


def forms(text: str, encoding: Encoding) -> list[int]:
    """The form of every token."""
    words, offsets = encoding.word_ids, encoding.offsets
    out = [0] * len(words)
    before, i = 0, 0
    while i < len(words):
        j = i
        while j + 1 < len(words) and words[j + 1] == words[i]:
            j += 1
        start, end = offsets[i][0], offsets[j][1]
        gap = text[before:start]
        space = 2 if i == 0 or "\n" in gap or "\r" in gap else int(any(c.isspace() for c in gap))
        out[i : j + 1] = [shape(text[start:end]) + 8 * space] * (j + 1 - i)
        before, i = end, j + 1
    return out


def token_targets(example: Example, encoding: Encoding) -> list[int]:
    """A row of `targets.TABLE` for every token; a word belongs to a span that it overlaps."""
    rows = [targets.OUTSIDE[example.unmarked]] * len(encoding.ids)
    offsets, words = encoding.offsets, encoding.word_ids
    at = 0
    for start, end, label in sorted(example.spans):
        while at < len(offsets) and offsets[at][1] <= start:
            at += 1
        while (
            0 < at < len(offsets)
            and words[at - 1] == words[at]
            and rows[at - 1] >= targets.OUTSIDE["all"]
        ):
            at -= 1
        last = at
        while last < len(offsets) and (
            offsets[last][0] < end or (last > at and words[last] == words[last - 1])
        ):
            last += 1
        if last > at:
            rows[at:last] = [targets.target(label, "I")] * (last - at)
            rows[at], rows[last - 1] = targets.target(label, "B"), targets.target(label, "E")
            if last - at == 1:
                rows[at] = targets.target(label, "S")
        at = last
    return rows


def windows(example: Example, tokenizer: Tokenizer) -> Iterator[Window]:
    """FORMAT.md's windows of the text."""
    encoding = tokenizer.encode(example.text, add_special_tokens=False)
    if not encoding.ids:
        return
    form, rows = forms(example.text, encoding), token_targets(example, encoding)
    free = targets.OUTSIDE["anything"]
    for start in range(0, max(1, len(encoding.ids) - OVERLAP), INSIDE - OVERLAP):
        part = slice(start, start + INSIDE)
        yield Window(
            np.array([CLS, *encoding.ids[part], SEP], np.uint16),
            np.array([0, *form[part], 0], np.uint8),
            np.array([free, *rows[part], free], np.uint8),
            example.topics,
            example.subject,
        )


def _head(head: str) -> tuple[tuple[int, ...], int]:
    names, subject = head.split()
    return sources.topics_of(*([] if names == "-" else names.split(","))), SUBJECTS.index(subject)


# How often each kind of text is drawn.
SHARES = {
    "spans": 30, "documents": 36, "natural": 7, "clean": 8, "presidio": 5, "filled": 3, "btc": 4,
    "wnut": 2, "tab": 3, "meddocan": 3, "benign": 4, "disclosing": 0.5, "code": 4,
}  # fmt: skip


class Stream:
    """An endless stream of training examples."""

    def __init__(self, pools: Path, public: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lexicon = grammar.read_lexicon(HERE / "templates/lexicon.txt")
        self.values = Values(pools, self.lexicon)
        self.public = sources.training(public)
        self.filled = sources.presidio_templates(public)
        self.spans = grammar.read_templates(HERE / "templates/spans.txt")
        self.clean = grammar.read_templates(HERE / "templates/clean.txt")
        self.documents: dict[str, list[str]] = {}
        for head, template in grammar.read_templates(HERE / "templates/documents.txt"):
            self.documents.setdefault(head, []).append(template)
        self.natural = grammar.read_templates(HERE / "templates/natural.txt")
        # Kinds of document by the number of their templates, damped, personal ones and benign
        # ones first.
        self.heads = list(self.documents)
        self.head_weights = [
            len(self.documents[head]) ** 0.6
            * (2 if head.endswith("personal") else 5 if head == "- general" else 1)
            for head in self.heads
        ]

    def _filled(self, template: str, lang: str | None) -> tuple[str, list[grammar.Span]]:
        text = grammar.expand(template, self.lexicon, self.rng)
        memory: dict[str, object] = {"lang": lang} if lang else {}

        def slots(
            slot: str, rng: random.Random, inner: dict[str, object]
        ) -> tuple[str, str | None]:
            for key, value in memory.items():
                inner.setdefault(key, value)
            return self.values(slot, rng, inner)

        return grammar.fill(text, slots, self.rng)

    def _spans(self) -> Example:
        head, template = self.rng.choice(self.spans)
        lang = head.split()[0]
        text, spans = self._filled(
            template, None if lang == "en" and self.rng.random() < 0.3 else lang
        )
        return Example(text, spans)

    def _clean(self) -> Example:
        text, spans = self._filled(self.rng.choice(self.clean)[1], "en")
        return Example(text, spans, "all", sources.NONE, 1)

    def _document(self) -> Example:
        head = self.rng.choices(self.heads, self.head_weights)[0]
        text, spans = self._filled(self.rng.choice(self.documents[head]), "en")
        topics, subject = _head(head)
        return Example(text, spans, "text", topics, subject)

    def _natural(self) -> Example:
        head, template = self.rng.choice(self.natural)
        text, spans = self._filled(template, "en")
        topics, subject = _head(head)
        chat = self.rng.random()
        if chat < 0.15:
            word = self.rng.choice(self.lexicon["chit"] + self.lexicon["venting"])
            parts = [Example(word), Example(text, spans)]
            if chat < 0.05:
                parts.reverse()
            mixed = augment.together(parts, self.rng)
            text, spans = mixed.text, mixed.spans
        return Example(text, spans, "text", topics, subject)

    def _long_document(self) -> Example:
        """A document with harmless or general text around it; what is private decides."""
        rng, main = self.rng, self._document()
        others = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            other = self._document() if rng.random() < 0.5 else rng.choice(self.public["benign"])
            if other.subject == 1:
                others.append(other)
        parts = [*others, main]
        rng.shuffle(parts)
        mixed = augment.together(parts, rng)
        topics = tuple(max(values) for values in zip(*(part.topics for part in parts), strict=True))
        return replace(
            mixed,
            topics=main.topics if main.subject != 1 else topics,
            subject=main.subject,
            unmarked="text",
        )

    def _public(self, source: str) -> Example:
        example = self.rng.choice(self.public[source])
        if source in ("tab", "meddocan") and len(example.text) > 600:
            at = self.rng.randrange(len(example.text) - 400)
            if self.rng.random() < 0.2 or (source == "meddocan" and self.rng.random() < 0.4):
                at = 0
            at = example.text.rfind(" ", 0, at) + 1
            end = example.text.find(" ", at + self.rng.randint(60, 520))
            end = len(example.text) if end < 0 else end
            spans = [
                (a - at, b - at, label) for a, b, label in example.spans if a >= at and b <= end
            ]
            example = replace(example, text=example.text[at:end], spans=spans)
        if self.rng.random() < 0.5:
            example = augment.renamed(example, self.rng, self._name)
        return example

    def _name(self, rng: random.Random, full: bool) -> str:
        return self.values.value("name" if full else rng.choice(["first", "last"]), rng, {}, "x")

    def draw(self) -> Example:
        """One example with its distortions."""
        rng = self.rng
        kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
        if kind == "spans":
            example = self._spans()
            if rng.random() < 0.4:
                more = [
                    self._spans() if rng.random() < 0.7 else self._clean()
                    for _ in range(rng.choice([1, 1, 2, 3]))
                ]
                parts = [example, *more]
                rng.shuffle(parts)
                example = replace(
                    augment.together(parts, rng), topics=(-1,) * len(TOPICS), subject=-1
                )
        elif kind == "documents":
            example = self._long_document() if rng.random() < 0.2 else self._document()
        elif kind == "natural":
            example = self._natural()
        elif kind == "clean":
            example = self._clean()
            if rng.random() < 0.4:
                example = augment.together(
                    [example, *(self._clean() for _ in range(rng.choice([1, 2, 4])))], rng
                )
        elif kind == "filled":
            text, spans = self._filled(rng.choice(self.filled), None)
            example = Example(text, spans, "synthetic")
        else:
            example = self._public(kind)
        if rng.random() < 0.22:
            example = augment.recase(example, rng)
        if rng.random() < 0.12:
            example = augment.typos(example, rng)
        if rng.random() < 0.06:
            example = augment.unpunctuated(example, rng)
        return example

    def __iter__(self) -> Iterator[Example]:
        while True:
            yield self.draw()


def step_arrays(
    stream: Stream, tokenizer: Tokenizer, rows: int, buckets: int
) -> list[dict[str, np.ndarray]]:
    """`rows` windows sorted by length into `buckets` padded batches of one step."""
    made: list[Window] = []
    while len(made) < rows:
        made += list(windows(stream.draw(), tokenizer))[:3]
    made = sorted(made[:rows], key=lambda window: len(window.ids))
    out = []
    for part in np.array_split(np.arange(rows), buckets):
        some = [made[i] for i in part]
        width = -(-len(some[-1].ids) // 16) * 16
        batch = {
            "ids": np.zeros((len(some), width), np.int16),
            "forms": np.zeros((len(some), width), np.uint8),
            "targets": np.full((len(some), width), targets.OUTSIDE["anything"], np.uint8),
            "lengths": np.array([len(one.ids) for one in some], np.int16),
            "topics": np.array([one.topics for one in some], np.int8),
            "subject": np.array([one.subject for one in some], np.int8),
        }
        for i, one in enumerate(some):
            n = len(one.ids)
            batch["ids"][i, :n] = one.ids
            batch["forms"][i, :n] = one.forms
            batch["targets"][i, :n] = one.targets
        out.append(batch)
    return out
