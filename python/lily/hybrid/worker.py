"""The worker: a model on this machine that reads private material and answers about it.

This file owns how a text longer than the context is read, piece by piece. It opens no connection
and knows no planner; whatever it says is private until ``release`` has judged it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from lily.cancel import CancelToken
from lily.errors import Cancelled
from lily.hybrid.material import Piece

_CHARACTERS_PER_TOKEN = 3.0  # on the low side, so that a piece fits
_SYSTEM = (
    "You work on one machine with private documents. Answer the request from the given material, "
    "briefly and exactly. If the material does not say, say that."
)
_COMBINE = "These are answers about consecutive parts of the material. Give one answer to: "


class Model(Protocol):
    """What is needed of ``lily.Engine``."""

    @property
    def max_context(self) -> int:
        """Tokens of prompt and answer together."""

    def generate(self, prompt: Any, **options: Any) -> Any:
        """Something with a ``text``."""


class Worker:
    """Answers requests about pieces of material. Raises what the model raises, and Cancelled."""

    def __init__(self, model: Model, max_tokens: int, cancel: CancelToken) -> None:
        self._model, self._max_tokens, self._cancel = model, max_tokens, cancel

    def answer(self, request: str, pieces: Sequence[Piece] = ()) -> str:
        """An answer in words. A long piece is read in parts, and their answers are combined."""
        parts = [part for piece in pieces for part in self._parts(request, piece)]
        if len(parts) <= 1 or sum(map(len, parts)) <= self._room(request):
            return self._say(request, parts)
        while True:
            answers = [self._say(request, [part]) for part in parts]
            joined = "\n".join(f"- {answer}" for answer in answers)
            if len(joined) <= self._room(request) or len(answers) <= 2:
                return self._say(_COMBINE + request, [joined[: self._room(request)]])
            parts = _cut(joined, self._room(request))

    def _room(self, request: str) -> int:
        """Characters of material that fit beside request and answer."""
        tokens = self._model.max_context - self._max_tokens - 128
        most = int(tokens * _CHARACTERS_PER_TOKEN) - len(request) - len(_SYSTEM)
        return max(most, 200)

    def _parts(self, request: str, piece: Piece) -> list[str]:
        return _cut(piece.text, self._room(request))

    def _say(self, request: str, parts: Sequence[str]) -> str:
        material = "\n\n".join(parts)
        content = f"{request}\n\nMaterial:\n{material}" if material else request
        messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": content}]
        found = self._model.generate(
            messages,
            max_tokens=self._max_tokens,
            temperature=0,  # it extracts: the same question has the same answer
            enable_thinking=False,
            cancel=self._cancel,
        )
        if self._cancel.cancelled:
            raise Cancelled("the run was cancelled")
        return str(found.text).strip()


def _cut(text: str, most: int) -> list[str]:
    """Parts of up to `most` characters, at line ends where there are any."""
    parts = []
    while len(text) > most:
        end = text.rfind("\n", most // 2, most)
        end = end + 1 if end > 0 else most
        parts.append(text[:end])
        text = text[end:]
    return [*parts, text] if text.strip() else parts
