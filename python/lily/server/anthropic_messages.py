"""POST /v1/messages and /v1/messages/count_tokens.

This file owns the shapes of Anthropic's answers and errors, whole and streamed, from the same
steps. What the request means stands in ``anthropic_requests``.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pydantic_core
from starlette.requests import Request
from starlette.responses import Response

from lily.completion import Chunk, Completion
from lily.server.anthropic_requests import CountRequest, MessagesRequest
from lily.server.api import Api, Context, Endpoint
from lily.server.blocks import Block, Blocks, Step
from lily.server.core import ChatJob
from lily.server.errors import Problem, noted
from lily.server.openai_shapes import timings
from lily.server.wire import (
    event_stream,
    json_response,
    parse,
    read_json,
    sse,
    unknown_fields,
    unless_gone,
    warning_headers,
)

# Clients drop thinking without a signature, or refuse it; nothing is proved by this one.
_SIGNATURE = "bGlseQ=="
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}
_STARTS: dict[str, dict[str, Any]] = {
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "text": {"type": "text", "text": ""},
}
_DELTAS = {
    "thinking": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "call": ("input_json_delta", "partial_json"),
}


def error_body(found: Problem) -> dict[str, Any]:
    """An error in Anthropic's shape."""
    kind = _TYPES.get(found.status)
    if kind is None:
        kind = "api_error" if found.status >= 500 else "invalid_request_error"
    message = found.message
    if found.code == "context_length_exceeded":
        message = f"prompt is too long: {message}"  # the words by which clients know it
    return {"type": "error", "error": {"type": kind, "message": message}}


async def create(context: Context, request: Request) -> Response:
    """Answer a chat, whole or streamed."""
    asked = parse(MessagesRequest, await read_json(request, context.settings))
    headers = warning_headers(_warnings(asked, context))
    run = _Run(context, asked)
    if asked.stream:
        return await event_stream(request, run.events(), headers)
    return json_response(await unless_gone(request, run.whole()), headers=headers)


async def count(context: Context, request: Request) -> Response:
    """The tokens of a prompt, which is not answered."""
    asked = parse(CountRequest, await read_json(request, context.settings))
    ids = await context.core.tokens(asked.job())
    headers = warning_headers(unknown_fields(asked))
    return json_response({"input_tokens": len(ids)}, headers=headers)


def _warnings(asked: MessagesRequest, context: Context) -> list[str]:
    """What is not done as it was asked for."""
    card = context.card
    found = [*unknown_fields(asked), *card.other_model(asked.model)]
    if asked.thinking is not None and asked.thinking.budget_tokens is not None:
        found.append("thinking.budget_tokens is not enforced; max_tokens is")
    return [*found, *card.clamped("max_tokens", asked.max_tokens)]


class _Run:
    """One request."""

    def __init__(self, context: Context, asked: MessagesRequest) -> None:
        self._context = context
        self._asked = asked
        self._blocks = Blocks()
        self._head = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": context.card.name,
        }

    async def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        async with await self._context.core.start(self._asked.job()) as answer:
            done = await self._blocks.take_all(answer)
        return {
            **self._head,
            "content": [_content(block) for block in self._blocks.all],
            **self._ending(done),
            "usage": self._usage(done),
            "timings": timings(done),
        }

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events of a stream; raises before the first if the job cannot be done."""
        job = self._asked.job()
        answer = await self._context.core.start(job)
        with contextlib.closing(answer):
            try:
                yield self._start(await self._count(job))
                async for event in answer:
                    if not isinstance(event, Chunk):
                        yield _event({"type": "ping"})
                        continue
                    for step in self._blocks.take(event):
                        for said in _events(step):
                            yield _event(said)
                yield self._delta(self._blocks.done)
                yield _event({"type": "message_stop"})
            except Exception as error:
                yield _event(error_body(noted(error)))

    async def _count(self, job: ChatJob) -> int:
        """The prompt's tokens, counted while the answer is already being made.

        Clients take them from the first event, and the engine tells of them in the last. It needs
        no place in the queue, for the answer has one.
        """
        async with self._context.core.host.lend() as engine:
            ids = await asyncio.to_thread(engine.prompt_tokens, job.prompt, **job.rendering)
            return len(ids)

    def _start(self, prompt_tokens: int) -> bytes:
        message: dict[str, Any] = {
            **self._head,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(prompt_tokens, 0, 0, 0),
        }
        return _event({"type": "message_start", "message": message})

    def _delta(self, done: Completion) -> bytes:
        return _event(
            {
                "type": "message_delta",
                "delta": self._ending(done),
                "usage": self._usage(done),
                "timings": timings(done),
            }
        )

    def _ending(self, done: Completion) -> dict[str, Any]:
        if done.finish_reason == "length":
            asked_for = done.usage.completion_tokens >= self._asked.max_tokens
            reason = "max_tokens" if asked_for else "model_context_window_exceeded"
        elif done.finish_reason == "tool_calls":
            reason = "tool_use"
        else:
            reason = "end_turn" if done.stop is None else "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": done.stop}

    def _usage(self, done: Completion) -> dict[str, Any]:
        counts, thought = done.usage, self._blocks.reasoning_tokens
        fresh = counts.prompt_tokens - counts.cached_tokens
        return _usage(fresh, counts.cached_tokens, counts.completion_tokens, thought)


def _usage(fresh: int, cached: int, generated: int, thought: int) -> dict[str, Any]:
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": generated,
        "output_tokens_details": {"thinking_tokens": thought},
    }


def _event(said: dict[str, Any]) -> bytes:
    return sse(said, said["type"])


def _events(step: Step) -> Iterator[dict[str, Any]]:
    """What the stream says of a step."""
    what, block, text = step
    if what == "begin":
        start = _STARTS.get(block.kind) or {
            "type": "tool_use",
            "id": block.call_id,
            "name": block.name,
            "input": {},
        }
        yield {"type": "content_block_start", "index": block.index, "content_block": start}
    elif what == "more":
        kind, name = _DELTAS[block.kind]
        yield _delta(block, {"type": kind, name: text})
    else:
        if block.kind == "thinking":
            yield _delta(block, {"type": "signature_delta", "signature": _SIGNATURE})
        yield {"type": "content_block_stop", "index": block.index}


def _delta(block: Block, delta: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": block.index, "delta": delta}


def _content(block: Block) -> dict[str, Any]:
    """A block of an answer that is not streamed."""
    if block.kind == "thinking":
        return {"type": "thinking", "thinking": block.text, "signature": _SIGNATURE}
    if block.kind == "text":
        return {"type": "text", "text": block.text}
    # Of a call that was cut short, what there is, as Anthropic's clients read it from a stream.
    found = pydantic_core.from_json(block.text or "{}", allow_partial=not block.complete)
    return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": found}


API = Api(
    [
        Endpoint(
            method="POST",
            path="/v1/messages",
            handler=create,
            summary="Answer a chat, in Anthropic's shape.",
            body=MessagesRequest,
            answers=((200, "application/json"), (200, "text/event-stream")),
        ),
        Endpoint(
            method="POST",
            path="/v1/messages/count_tokens",
            handler=count,
            summary="Count the tokens of a chat, in Anthropic's shape.",
            body=CountRequest,
        ),
    ],
    error_body,
)
