"""POST /v1/responses.

This file owns the shapes of OpenAI's Responses API, whole and streamed, from the same steps. What
the request means stands in ``responses_requests``. Nothing is kept between requests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lily.completion import Chunk, Completion
from lily.server.api import Api, Context, Endpoint
from lily.server.blocks import Block, Blocks, Step
from lily.server.errors import Problem, noted, openai_body
from lily.server.openai_shapes import timings
from lily.server.responses_requests import ResponsesRequest
from lily.server.wire import (
    KEEP_ALIVE,
    event_stream,
    json_response,
    parse,
    read_json,
    sse,
    unknown_fields,
    unless_gone,
    warning_headers,
)

_ID_STARTS = {"thinking": "rs", "text": "msg", "call": "fc"}


def error_body(found: Problem) -> dict[str, Any]:
    """An error in OpenAI's shape. What the engine calls messages is the ``input`` of this API."""
    if found.param is not None and found.param.startswith("messages"):
        found = dataclasses.replace(found, param="input")
    return openai_body(found)


async def create(context: Context, request: Request) -> Response:
    """Answer, whole or streamed."""
    asked = parse(ResponsesRequest, await read_json(request, context.settings))
    headers = warning_headers(_warnings(asked, context))
    run = _Run(context, asked)
    if asked.stream:
        return await event_stream(request, run.events(), headers)
    return json_response(await unless_gone(request, run.whole()), headers=headers)


def _warnings(asked: ResponsesRequest, context: Context) -> list[str]:
    """What is not done as it was asked for."""
    card = context.card
    return [
        *unknown_fields(asked),
        *asked.not_done,
        *card.other_model(asked.model),
        *card.clamped("max_output_tokens", asked.max_output_tokens),
    ]


class _Run:
    """One request."""

    def __init__(self, context: Context, asked: ResponsesRequest) -> None:
        self._context = context
        self._asked = asked
        self._blocks = Blocks()
        self._ids: dict[int, str] = {}
        self._sent = 0
        self._head = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": context.card.name,
            **_echo(asked),
        }

    async def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        async with await self._context.core.start(self._asked.job()) as answer:
            return self._ended(await self._blocks.take_all(answer))

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events of a stream; raises before the first if the job cannot be done."""
        answer = await self._context.core.start(self._asked.job())
        with contextlib.closing(answer):
            try:
                begun = self._response("in_progress", [])
                yield self._event("response.created", response=begun)
                yield self._event("response.in_progress", response=begun)
                async for event in answer:
                    if not isinstance(event, Chunk):
                        yield KEEP_ALIVE
                        continue
                    for step in self._blocks.take(event):
                        for name, said in self._said(step):
                            yield self._event(f"response.{name}", **said)
                ended = self._ended(self._blocks.done)
                yield self._event(f"response.{ended['status']}", response=ended)
            except Exception as error:
                yield self._event("response.failed", response=self._failed(noted(error)))

    def _event(self, kind: str, **said: Any) -> bytes:
        numbered = {"type": kind, "sequence_number": self._sent, **said}
        self._sent += 1
        return sse(numbered, kind)

    def _said(self, step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
        """Names and contents of the events that tell of a step."""
        what, block, text = step
        item = self._item(block, "in_progress")
        at = {"item_id": item["id"], "output_index": block.index}
        if block.kind == "call":
            name = "function_call_arguments"
        else:
            name = "reasoning_text" if block.kind == "thinking" else "output_text"
            at["content_index"] = 0
        extra: dict[str, Any] = {"logprobs": []} if block.kind == "text" else {}
        if what == "begin":
            yield "output_item.added", {"output_index": block.index, "item": item}
            if block.kind != "call":
                yield "content_part.added", {**at, "part": _part(block, "")}
        elif what == "more":
            yield f"{name}.delta", {**at, "delta": text, **extra}
        else:
            if block.kind == "call":
                yield f"{name}.done", {**at, "name": block.name, "arguments": block.text}
            else:
                yield f"{name}.done", {**at, "text": block.text, **extra}
                yield "content_part.done", {**at, "part": _part(block, block.text)}
            done = self._item(block)
            yield "output_item.done", {"output_index": block.index, "item": done}

    def _item(self, block: Block, status: str | None = None) -> dict[str, Any]:
        """A block as an item of the output; one that has only begun has no text yet."""
        if block.index not in self._ids:
            self._ids[block.index] = f"{_ID_STARTS[block.kind]}_{uuid.uuid4().hex}"
        item: dict[str, Any] = {"id": self._ids[block.index], "type": "message"}
        content = [] if status == "in_progress" else [_part(block, block.text)]
        if block.kind == "thinking":
            item |= {"type": "reasoning", "summary": [], "content": content}
            item["encrypted_content"] = None
        elif block.kind == "text":
            item |= {"role": "assistant", "content": content}
        else:
            arguments = "" if status == "in_progress" else block.text
            item |= {"type": "function_call", "call_id": block.call_id, "name": block.name}
            item["arguments"] = arguments
        return {**item, "status": status or ("completed" if block.complete else "incomplete")}

    def _response(self, status: str, output: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        nothing = {"error": None, "incomplete_details": None, "usage": None}
        return {**self._head, **nothing, "status": status, "output": output, **more}

    def _ended(self, done: Completion) -> dict[str, Any]:
        more = {"usage": self._usage(done), "timings": timings(done)}
        status = "completed"
        if done.finish_reason == "length":
            status, more["incomplete_details"] = "incomplete", {"reason": "max_output_tokens"}
        output = [self._item(block) for block in self._blocks.all]
        return self._response(status, output, completed_at=int(time.time()), **more)

    def _failed(self, found: Problem) -> dict[str, Any]:
        known = "invalid_prompt" if found.status < 500 else "server_error"
        error = {"code": known, "message": found.message}
        output = [self._item(block, "incomplete") for block in self._blocks.all]
        return self._response("failed", output, error=error)

    def _usage(self, done: Completion) -> dict[str, Any]:
        counts = done.usage
        return {
            "input_tokens": counts.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": counts.cached_tokens,
                "cache_write_tokens": 0,
            },
            "output_tokens": counts.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": self._blocks.reasoning_tokens},
            "total_tokens": counts.total_tokens,
        }


def _part(block: Block, text: str) -> dict[str, Any]:
    if block.kind == "thinking":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _echo(asked: ResponsesRequest) -> dict[str, Any]:
    """What a response repeats of its request, with what holds where nothing was said."""
    tools = [tool.model_dump(by_alias=True) for tool in asked.functions]
    choice = asked.tool_choice or "auto"
    text = asked.text.model_dump(by_alias=True, exclude_none=True) if asked.text else {}
    reasoning = asked.reasoning
    return {
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": asked.metadata or {},
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {
            "effort": reasoning.effort if reasoning else None,
            "summary": None,
        },
        "background": False,
        "store": False,
        "temperature": asked.temperature,
        "text": {"format": {"type": "text"}, **text},
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "tools": tools,
        "top_p": asked.top_p,
        "truncation": "disabled",
    }


API = Api(
    [
        Endpoint(
            method="POST",
            path="/v1/responses",
            handler=create,
            summary="Answer a chat, as OpenAI's Responses API; nothing is stored.",
            body=ResponsesRequest,
            answers=((200, "application/json"), (200, "text/event-stream")),
        )
    ],
    error_body,
)
