"""From tokens to what may be shown: characters whole, thinking and calls apart, stop strings cut.

This file owns the way of the text through the detokenizer, the parser of calls and the stop
strings, and what ``Chunk`` and ``Completion`` tell of it. It chooses no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from lily.chat import END_THINK, THINK
from lily.completion import ToolCall, ToolCallDelta
from lily.request import Request
from lily.stops import StopMatcher
from lily.tokenizer import Detokenizer, Tokenizer
from lily.toolcalls import CallParser, Event


class AnswerText:
    """What there is to show of an answer so far, and what ``take`` has not given yet.

    Thinking is told by the control tokens ``<think>`` and ``</think>``, not by their spelling, so
    an answer that quotes them stays an answer. Calls and stop strings are looked for in the answer
    only, and stop strings not within calls.
    """

    def __init__(self, tokenizer: Tokenizer, request: Request) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(request.params.stop)
        controls = tokenizer.control_ids if request.chat else {}
        self._turns = {controls[t]: t == THINK for t in (THINK, END_THINK) if t in controls}
        self._parser = CallParser(request.tools) if request.tools else None
        self._parallel = request.parallel_tool_calls
        self.thinking = request.chat and request.prompt.thinking
        """Whether the next token belongs to the thinking."""
        self.after_thinking = False
        """Whether there are only newlines since </think>; they belong to neither."""
        self._answer: list[str] = []
        self._reasoning: list[str] = []
        self._deltas: list[ToolCallDelta] = []
        self._taken = (0, 0, 0)

    @property
    def stop_hit(self) -> str | None:
        """The stop string that ended the answer."""
        return self._stops.hit

    @property
    def ready(self) -> bool:
        """Whether there is text that ``take`` has not given yet."""
        return self._taken != self._counts()

    @property
    def all_answer(self) -> str:
        return "".join(self._answer)

    @property
    def all_reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls so far."""
        return self._parser.calls if self._parser else ()

    @property
    def cut(self) -> str:
        """The beginning of a call that the answer ended in."""
        return self._parser.cut if self._parser else ""

    @property
    def called(self) -> bool:
        """Whether the one call that the answer may have is there."""
        return self._parser is not None and self._parser.settled and not self._parallel

    def push(self, token_id: int) -> None:
        """Take one more token."""
        turn = self._turns.get(token_id)
        if turn is None:
            self._route(self._detokenizer.push(token_id))
            return
        self._route(self._detokenizer.finish())
        self.after_thinking = self.thinking and not turn
        self.thinking = turn

    def finish(self, *, ended: bool) -> None:
        """No more tokens follow: let go of what was held back. ``ended``: by the model itself."""
        self._route(self._detokenizer.finish())
        if self._parser is not None:
            self._tell(self._parser.finish(ended=ended))
        self._show(self._answer, self._stops.finish())

    def take(self) -> tuple[str, str, tuple[ToolCallDelta, ...]]:
        """Answer, thinking and calls since the last ``take``."""
        answer, reasoning, deltas = self._taken
        self._taken = self._counts()
        return (
            "".join(self._answer[answer:]),
            "".join(self._reasoning[reasoning:]),
            tuple(self._deltas[deltas:]),
        )

    def _counts(self) -> tuple[int, int, int]:
        return len(self._answer), len(self._reasoning), len(self._deltas)

    def _route(self, text: str) -> None:
        if self.thinking:
            self._show(self._reasoning, text)
            return
        if self.after_thinking:
            text = text.lstrip("\n")
            self.after_thinking = not text
        self._tell([text] if self._parser is None else self._parser.push(text))

    def _tell(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, str):
                self._show(self._answer, self._stops.push(event))
            elif self._stops.hit is None:
                # A stop string does not reach over a call.
                self._show(self._answer, self._stops.finish())
                self._deltas.append(event)

    @staticmethod
    def _show(channel: list[str], text: str) -> None:
        if text:
            channel.append(text)
