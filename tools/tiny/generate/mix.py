"""The proportions of the synthetic text, and conversations that change the subject.

Owns how often each skill appears, whether a document shows its traces (thinking) or not, and that
no held-out prompt gets through. Knows no wording.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from . import (
    asks,
    calls,
    chat,
    copying,
    facts,
    held_out,
    persona,
    stories,
    structured,
    sums,
    tales,
    talk,
    wide,
    words,
)
from .base import Doc, Rng, assistant, user

KINDS: tuple[tuple[Callable[[Rng], Doc], float], ...] = (
    (stories.story, 8), (stories.plain, 1), (stories.continuation, 1.5),
    (tales.tale, 15), (tales.plain, 1.5), (tales.reading, 1.5),
    (facts.fact_doc, 14), (facts.elliptical, 1),
    (asks.ask_doc, 23), (asks.chain, 6.5), (asks.list_more, 2.5),
    (sums.sum_doc, 9), (sums.chain, 1.5),
    (words.word_doc, 5), (words.reading, 4),
    (chat.talk, 6.5), (chat.memory, 5), (chat.unknown, 1.6), (talk.talk, 8),
    (wide.name_some, 2), (wide.kind_of, 1.5), (wide.bigger, 1), (wide.about_it, 3.5),
    (wide.at_once, 3.5), (wide.cannot, 1.2), (wide.trivia, 2),
    (structured.json_doc, 8.5), (calls.call_doc, 14), (persona.system_doc, 9),
    (copying.copy_doc, 9), (copying.spread, 3),
)  # fmt: skip
_MAKERS = [k for k, _ in KINDS]
_SUMS = list(accumulate(w for _, w in KINDS))
THINKING = 0.33  # share of the documents that show their traces


def mixed(rng: Rng) -> Doc:
    """A conversation in which every turn is about something else."""
    messages = []
    for _ in range(rng.randint(2, 6)):
        x = rng.random()
        if x < 0.18:
            messages += chat.small_talk(rng, rng.choice([1, 1, 2]))
        elif x < 0.34:
            messages += talk.some(rng)
        elif x < 0.42:
            messages += rng.choice([stories.story, tales.tale])(rng).messages
        else:
            make = rng.choice([facts.turn, asks.turn, asks.turn, sums.turn, words.turn])
            question, answer, think = make(rng)
            messages += [user(question), assistant(answer, think)]
    return Doc(messages, kind="mixed")


def document(rng: Rng) -> Doc:
    """One synthetic document, its traces either all shown or all hidden."""
    while True:
        make = mixed if rng.random() < 0.08 else rng.choices(_MAKERS, cum_weights=_SUMS)[0]
        doc = make(rng)
        if not held_out.overlap(doc):
            break
    show = rng.random() < THINKING
    for message in doc.messages:
        if message["role"] == "assistant" and not (show and message["reasoning_content"]):
            message["reasoning_content"] = ""
    return doc
