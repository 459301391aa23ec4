"""Keeps the forty fixed prompts (`prompts.json`) and their near copies out of the training text.

Owns the comparison: letters and digits only, case ignored. A prompt without a system message is
held out word by word; with one, only together with that message. Knows nothing of how text is made.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from .base import Doc

PROMPTS = Path(__file__).parent.parent / "prompts.json"
_OTHER = re.compile(r"[^a-z0-9]+")
# Words that together would make a near copy of a held-out prompt.
_TOGETHER = (
    ("otter", "shoe"), ("sisters", "kite"), ("shy", "dragon"), ("penguin", "sing"), ("sevilla",),
    ("bedtime", "moon"), ("short", "teapot"), ("son", "ladder"), ("theresa", "coco"), ("flint",),
    ("hamburg", "plumber"), ("blorptang",), ("14", "23"), ("26", "81"), ("35", "48"),
    ("lena", "marbles"), ("peter", "lisbon"), ("green", "12", "json"), ("dim", "40"),
    ("brave", "mouse", "moral"), ("norway", "going"), ("egypt", "capital", "json"),
)  # fmt: skip


def plain(text: str) -> str:
    return _OTHER.sub(" ", text.lower()).strip()


@lru_cache
def prompts(path: Path = PROMPTS) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """(user texts of prompts without a system message, (system, user) of the others)."""
    alone, paired = set(), set()
    for prompt in json.loads(path.read_text(encoding="utf-8")):
        messages = prompt["messages"]
        rule = next((plain(m["content"]) for m in messages if m["role"] == "system"), "")
        for m in messages:
            if m["role"] == "user" and rule:
                paired.add((rule, plain(m["content"])))
            elif m["role"] == "user":
                alone.add(plain(m["content"]))
    return frozenset(alone), frozenset(paired)


def overlap(doc: Doc) -> str:
    """The user text of `doc` that is held out, or nothing."""
    alone, paired = prompts()
    rule = ""
    for m in doc.messages:
        if m["role"] == "system":
            rule = plain(m["content"])
        elif m["role"] == "user":
            text = plain(m["content"])
            if text in alone or (rule, text) in paired:
                return m["content"]
            for words in _TOGETHER:
                if words[0] in text and all(w in text for w in words[1:]):
                    have = text.split()
                    if all(w in have for w in words):
                        return m["content"]
    return ""
