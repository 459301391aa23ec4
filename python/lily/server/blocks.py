"""An answer as a row of blocks: thinking, text and calls, each begun, continued and ended.

This file owns the order in which the parts of a chunk belong, for APIs whose answers are lists of
items rather than one message. It knows no API's shapes.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lily.completion import Chunk, Completion, ToolCallDelta
from lily.server.answer import Event
from lily.server.openai_shapes import AnswerTokens


@dataclass
class Block:
    """A part of an answer, as it grows.

    Attributes:
        index: its place in the answer.
        text: the thinking, the text, or the arguments of the call as JSON.
        call: which call of the answer it is; None if it is none.
        call_id: of a call.
        name: of the function that is called.
        complete: whether the model wrote it to its end.
    """

    kind: Literal["thinking", "text", "call"]
    index: int
    text: str = ""
    call: int | None = None
    call_id: str = ""
    name: str = ""
    complete: bool = True


Step: TypeAlias = "tuple[Literal['begin', 'more', 'end'], Block, str]"
"""What happens to a block; the string is what "more" adds."""


class Blocks:
    """Turns the chunks of one answer into steps. Between them, at most the last block is open."""

    def __init__(self) -> None:
        self.all: list[Block] = []
        """The blocks so far."""
        self.completion: Completion | None = None
        self._open: Block | None = None
        self._tokens = AnswerTokens()

    @property
    def reasoning_tokens(self) -> int:
        """Tokens that were spent on thinking."""
        return self._tokens.reasoning_tokens

    @property
    def done(self) -> Completion:
        """The completion, when the last chunk was taken."""
        assert self.completion is not None, "the last chunk carries the completion"
        return self.completion

    def take(self, chunk: Chunk) -> Iterator[Step]:
        """The steps of one more chunk; the last one closes what is open."""
        for _ in self._tokens.take(chunk):
            pass
        deltas = list(chunk.tool_calls)
        # What goes on with the open block comes first: only then can something else have begun.
        while deltas and self._open is not None and self._open.call == deltas[0].index:
            yield from self._more("call", deltas.pop(0).arguments)
        if self._open is not None and self._open.kind == "text":
            yield from self._more("text", chunk.text)
            yield from self._more("thinking", chunk.reasoning)
        else:
            yield from self._more("thinking", chunk.reasoning)
            yield from self._more("text", chunk.text)
        for delta in deltas:
            yield from self._call(delta)
        if chunk.completion is not None:
            self.completion = chunk.completion
            yield from self._finish(chunk.completion)

    async def take_all(self, events: AsyncIterable[Event]) -> Completion:
        """All chunks of an answer whose steps nobody wants to hear of."""
        async for event in events:
            if isinstance(event, Chunk):
                for _ in self.take(event):
                    pass
        return self.done

    def _more(self, kind: Literal["thinking", "text", "call"], text: str) -> Iterator[Step]:
        if not text:
            return
        if self._open is None or self._open.kind != kind:
            yield from self._begin(Block(kind, len(self.all)))
        assert self._open is not None, "it was just begun"
        self._open.text += text
        yield "more", self._open, text

    def _call(self, delta: ToolCallDelta) -> Iterator[Step]:
        if self._open is None or self._open.call != delta.index:
            made = Block("call", len(self.all), call=delta.index)
            made.call_id, made.name = delta.id or "", delta.name or ""
            yield from self._begin(made)
        yield from self._more("call", delta.arguments)

    def _begin(self, block: Block) -> Iterator[Step]:
        if self._open is not None:
            yield "end", self._open, ""
        self._open = block
        self.all.append(block)
        yield "begin", block, ""

    def _finish(self, done: Completion) -> Iterator[Step]:
        if self._open is None:
            return
        if self._open.call is not None:
            self._open.complete = done.tool_calls[self._open.call].complete
        else:
            self._open.complete = done.finish_reason != "length"
        yield "end", self._open, ""
        self._open = None
