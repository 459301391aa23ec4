"""The proportions of the synthetic text, and conversations that change the subject.

Owns how often each skill appears, and whether a document shows its traces (thinking) or not.
Knows no wording.
"""

from __future__ import annotations

from collections.abc import Callable

from . import calls, chat, facts, persona, stories, structured, sums, wide, words
from .base import Doc, Rng, assistant, user

KINDS: tuple[tuple[Callable[[Rng], Doc], float], ...] = (
    (stories.story, 17), (stories.plain, 2), (stories.continuation, 2),
    (facts.fact_doc, 24), (facts.elliptical, 2.5),
    (sums.sum_doc, 13), (sums.chain, 1.5),
    (words.word_doc, 6), (words.reading, 5),
    (chat.talk, 9), (chat.memory, 7), (chat.unknown, 2),
    (wide.name_some, 4), (wide.kind_of, 2), (wide.bigger, 1.5), (wide.about_it, 4),
    (wide.at_once, 3), (wide.cannot, 2), (wide.trivia, 2.5),
    (structured.json_doc, 9), (calls.call_doc, 10), (persona.system_doc, 9),
)  # fmt: skip
_MAKERS = [k for k, _ in KINDS]
_WEIGHTS = [w for _, w in KINDS]


def mixed(rng: Rng) -> Doc:
    """A conversation in which every turn is about something else."""
    messages = []
    for _ in range(rng.randint(2, 6)):
        x = rng.random()
        if x < 0.3:
            messages += chat.small_talk(rng, rng.choice([1, 1, 2]))
        elif x < 0.38:
            messages += stories.story(rng).messages
        else:
            make = rng.choice([facts.turn, facts.turn, sums.turn, words.turn])
            question, answer, think = make(rng)
            messages += [user(question), assistant(answer, think)]
    return Doc(messages, kind="mixed")


def document(rng: Rng) -> Doc:
    """One synthetic document, its traces either all shown or all hidden."""
    make = mixed if rng.random() < 0.09 else rng.choices(_MAKERS, _WEIGHTS)[0]
    doc = make(rng)
    show = rng.random() < 0.4
    for message in doc.messages:
        if message["role"] == "assistant" and not (show and message["reasoning_content"]):
            message["reasoning_content"] = ""
    return doc
