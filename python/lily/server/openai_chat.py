"""POST /v1/chat/completions.

This file owns the shapes of OpenAI's chat answers, whole and streamed, from the same chunks. What
the request means stands in ``openai_requests``.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lily.completion import Chunk, Completion, TokenLogprob
from lily.server import hybrid
from lily.server.answer import Answer
from lily.server.api import Api, Context, Endpoint
from lily.server.errors import noted, openai_body
from lily.server.openai_checks import check_bias, check_choices, warnings
from lily.server.openai_requests import ChatRequest
from lily.server.openai_shapes import AnswerTokens, chat_logprobs, timings, usage
from lily.server.wire import (
    DONE,
    KEEP_ALIVE,
    event_stream,
    json_response,
    parse,
    read_json,
    sse,
    unless_gone,
    warning_headers,
)


async def complete(context: Context, request: Request) -> Response:
    """Answer a chat, whole or streamed."""
    asked = parse(ChatRequest, await read_json(request, context.settings))
    if asked.model == hybrid.MODEL:
        return await hybrid.complete(context, request, asked)
    check_choices(asked.n or 1, context.settings)
    check_bias(asked, context.card)
    headers = warning_headers(warnings(asked, context.card))
    run = _Run(context, asked)
    if asked.stream:
        return await event_stream(request, run.events(), headers)
    return json_response(await unless_gone(request, run.whole()), headers=headers)


class _Choice:
    """One choice of an answer, as it grows."""

    def __init__(self, index: int, with_logprobs: bool) -> None:
        self._index = index
        self._with_logprobs = with_logprobs
        self._tokens = AnswerTokens()
        self._logprobs: list[TokenLogprob] = []
        self.completion: Completion | None = None

    @property
    def reasoning_tokens(self) -> int:
        return self._tokens.reasoning_tokens

    def take(self, chunk: Chunk) -> Iterator[dict[str, Any]]:
        """What ``choices[0]`` of the stream's chunks says of this piece."""
        new = self._tokens.take(chunk)
        self._logprobs += new
        self.completion = chunk.completion
        if chunk.reasoning:
            yield self._streamed({"reasoning_content": chunk.reasoning})
        if chunk.text or (new and not chunk.tool_calls):
            yield self._streamed({"content": chunk.text}, new)
            new = []
        if chunk.tool_calls:
            calls = []
            for call in chunk.tool_calls:
                said: dict[str, Any] = {"index": call.index}
                if call.id is not None:
                    said |= {"id": call.id, "type": "function"}
                name = {} if call.name is None else {"name": call.name}
                calls.append({**said, "function": {**name, "arguments": call.arguments}})
            yield self._streamed({"tool_calls": calls}, new)

    def opening(self) -> dict[str, Any]:
        """The first of the stream."""
        return self._streamed({"role": "assistant", "content": ""})

    def closing(self) -> dict[str, Any]:
        """The last of the stream."""
        assert self.completion is not None, "the last chunk carries the completion"
        return {**self._streamed({}), "finish_reason": self.completion.finish_reason}

    def whole(self) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""
        done = self.completion
        assert done is not None, "the last chunk carries the completion"
        message: dict[str, Any] = {
            "role": "assistant",
            "content": done.text if done.text or not done.tool_calls else None,
            "refusal": None,
        }
        if done.reasoning:
            message["reasoning_content"] = done.reasoning
        if done.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in done.tool_calls
            ]
        return {
            "index": self._index,
            "message": message,
            "logprobs": chat_logprobs(self._logprobs) if self._with_logprobs else None,
            "finish_reason": done.finish_reason,
        }

    def _streamed(
        self, delta: dict[str, Any], logprobs: list[TokenLogprob] | None = None
    ) -> dict[str, Any]:
        said = chat_logprobs(logprobs) if logprobs and self._with_logprobs else None
        return {"index": self._index, "delta": delta, "logprobs": said, "finish_reason": None}


class _Run:
    """One request, whose choices are made one after another.

    They would take turns on the device anyway, and later ones find the prompt in the cache.
    """

    def __init__(self, context: Context, asked: ChatRequest) -> None:
        self._context = context
        self._asked = asked
        self._choices = [_Choice(n, bool(asked.logprobs)) for n in range(asked.n or 1)]
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion.chunk" if asked.stream else "chat.completion",
            "created": int(time.time()),
            "model": context.card.name,
        }

    async def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        for index, choice in enumerate(self._choices):
            async with await self._start(index) as answer:
                async for event in answer:
                    if isinstance(event, Chunk):
                        for _ in choice.take(event):
                            pass
        return {
            **self._head,
            "choices": [choice.whole() for choice in self._choices],
            "usage": self._usage(),
            "timings": timings(self._completions[0]),
        }

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events of a stream; raises before the first if the job cannot be done."""
        answer = await self._start(0)
        async with contextlib.AsyncExitStack() as held:
            held.enter_context(contextlib.closing(answer))
            yield self._chunk(self._choices[0].opening())
            try:
                for index, choice in enumerate(self._choices):
                    if index:
                        answer = held.enter_context(contextlib.closing(await self._start(index)))
                        yield self._chunk(choice.opening())
                    async for event in answer:
                        if isinstance(event, Chunk):
                            for said in choice.take(event):
                                yield self._chunk(said)
                        else:
                            yield KEEP_ALIVE
                    assert choice.completion is not None, "the last chunk carries it"
                    yield self._chunk(choice.closing(), timings=timings(choice.completion))
            except Exception as error:
                yield sse(openai_body(noted(error)))
                return
            if self._asked.wants_usage:
                yield sse({**self._head, "choices": [], "usage": self._usage()})
            yield DONE

    async def _start(self, index: int) -> Answer:
        return await self._context.core.start(self._asked.job(index), admitted=index > 0)

    def _chunk(self, choice: dict[str, Any], **more: Any) -> bytes:
        nothing = {"usage": None} if self._asked.wants_usage else {}
        return sse({**self._head, "choices": [choice], **nothing, **more})

    @property
    def _completions(self) -> list[Completion]:
        return [choice.completion for choice in self._choices if choice.completion is not None]

    def _usage(self) -> dict[str, Any]:
        return usage(self._completions, sum(choice.reasoning_tokens for choice in self._choices))


API = Api(
    [
        Endpoint(
            method="POST",
            path="/v1/chat/completions",
            handler=complete,
            summary="Answer a chat.",
            body=ChatRequest,
            answers=((200, "application/json"), (200, "text/event-stream")),
        )
    ]
)
