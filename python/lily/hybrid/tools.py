"""The planner's tools, run on this machine: the worker's help, arithmetic.

This file owns their declarations and every word that a planner is told when a call cannot be done.
Those words are constants: an exception's text, a file's name or a planner's own arguments could
carry something private.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lily.errors import Cancelled
from lily.hybrid.calculator import calculate
from lily.hybrid.errors import Kept
from lily.hybrid.material import Materials, Piece
from lily.hybrid.outbound import Call
from lily.hybrid.receipt import HERE, Receipt
from lily.hybrid.release import Release, Released, constant, echo
from lily.hybrid.worker import Worker

MOST_CALLS = 8  # of one answer

SYSTEM = (
    "You plan. Private material stays on the user's machine; you see handles such as d1. A "
    "worker on that machine reads it for you: call ask_worker with handles and a clear "
    "request, one fact or one short summary each. Some results are kept private: you are then "
    "told a handle such as r1; write {{r1}} in your answer where it belongs, and it is put in "
    "for the user. Words such as [PERSON_1_k3vt] stand for private values: use them as they "
    "are. Do not ask for raw text, spellings or encodings. When you know enough, answer the "
    "user."
)

DECLARED: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "ask_worker",
            "description": "A model on the user's machine reads material and answers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "handles": {"type": "array", "items": {"type": "string"}},
                    "request": {"type": "string"},
                },
                "required": ["request"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "calculate",
            "description": "Exact arithmetic: numbers, + - * / // % **, brackets, min, max, sum.",
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string"}},
                "required": ["expression"],
            },
        },
    },
]

_MALFORMED = constant("The call is malformed. Its arguments must be a JSON object as declared.")
_UNKNOWN_TOOL = constant("There is no such tool.")
_UNKNOWN_HANDLE = constant("One of these handles does not exist.")
_NO_ARITHMETIC = constant("That is not arithmetic.")
_FAILED = constant("The worker could not do this.")
_KEPT = constant("The result is kept on the user's machine.")
TOO_MANY = constant("Too many calls at once.")


class Tools:
    """Runs calls of one run."""

    def __init__(
        self,
        worker: Worker,
        materials: Materials,
        release: Release,
        receipt: Receipt,
        unmask: Callable[[str], str],
    ) -> None:
        self._worker, self._materials, self._release = worker, materials, release
        self._receipt, self._unmask = receipt, unmask

    def run(self, call: Call) -> Released:
        """What the planner is told. Raises nothing but what ends the run (cancel, memory)."""
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            self._receipt.step("a malformed call of a tool", HERE, "refused")
            return _MALFORMED
        if call.name == "ask_worker":
            return self._ask_worker(arguments)
        if call.name == "calculate":
            return self._calculate(arguments)
        self._receipt.step("a call of a tool that does not exist", HERE, "refused")
        return _UNKNOWN_TOOL

    def _ask_worker(self, arguments: dict[str, Any]) -> Released:
        request, handles = arguments.get("request"), arguments.get("handles", [])
        if not isinstance(request, str) or not isinstance(handles, list):
            return _MALFORMED
        found = [self._materials.find(handle) for handle in handles]
        pieces = [piece for piece in found if piece]
        if len(pieces) < len(found):
            return _UNKNOWN_HANDLE
        work = f"worker reads {', '.join(piece.label for piece in pieces) or 'the request'}"
        try:
            text = self._worker.answer(self._unmask(request), pieces)
        except Cancelled:
            raise
        except Exception as error:
            self._receipt.step(work, HERE, f"failed: {type(error).__name__}")
            return _FAILED
        return self._give(text, work)

    def _calculate(self, arguments: dict[str, Any]) -> Released:
        expression = arguments.get("expression")
        if not isinstance(expression, str):
            return _MALFORMED
        plain = self._unmask(expression)
        try:
            value = calculate(plain)
        except ValueError:
            return _NO_ARITHMETIC
        if plain == expression:
            self._receipt.step("calculation", HERE, "told to the planner")
            return echo(value)
        return self._give(value, "calculation", is_computed=True)

    def _give(self, text: str, work: str, *, is_computed: bool = False) -> Released:
        piece = self._materials.add_result(text)
        what = f"result {piece.handle}"
        try:
            if is_computed:
                raise self._release.computed(what)
            released = self._release.result(text, what)
        except Kept as kept:
            self._receipt.step(work, HERE, f"kept here as {piece.handle}: {kept.reasons[0]}")
            return self._handle(piece)
        self._receipt.step(work, HERE, f"{piece.handle}, told to the planner")
        return released

    @staticmethod
    def _handle(piece: Piece) -> Released:
        # A handle is a letter and a count of our own.
        return constant(f"{_KEPT.text} Its handle is {piece.handle}: write {{{{{piece.handle}}}}}.")
