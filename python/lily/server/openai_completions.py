"""POST /v1/completions: text that is continued as it is.

This file owns the shapes of OpenAI's older API, whole and streamed, from the same chunks.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lily.completion import Chunk, Completion, TokenLogprob
from lily.server.answer import Answer
from lily.server.api import Api, Context, Endpoint
from lily.server.errors import noted, openai_body
from lily.server.openai_checks import check_bias, check_choices, warnings
from lily.server.openai_requests import CompletionRequest
from lily.server.openai_shapes import completion_logprobs, timings, usage
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
    """Continue one or more prompts, whole or streamed."""
    asked = parse(CompletionRequest, await read_json(request, context.settings))
    check_choices(len(asked.prompts) * (asked.n or 1), context.settings)
    check_bias(asked, context.card)
    headers = warning_headers(warnings(asked, context.card))
    run = _Run(context, asked)
    if asked.stream:
        return await event_stream(request, run.events(), headers)
    return json_response(await unless_gone(request, run.whole()), headers=headers)


class _Run:
    """One request; its choices, ``n`` for each prompt, are made one after another."""

    def __init__(self, context: Context, asked: CompletionRequest) -> None:
        self._context = context
        self._asked = asked
        choices = range(asked.n or 1)
        self._wanted = [(prompt, choice) for prompt in asked.prompts for choice in choices]
        self._done: list[Completion] = []
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": context.card.name,
        }

    async def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choices = []
        for index, (prompt, _) in enumerate(self._wanted):
            tokens: list[TokenLogprob] = []
            text = await self._echo(prompt)
            async with await self._start(index) as answer:
                async for event in answer:
                    if isinstance(event, Chunk):
                        text += event.text
                        tokens += event.logprobs
                        self._note(event)
            choices.append(self._choice(index, text, tokens, 0, self._done[-1].finish_reason))
        return {
            **self._head,
            "choices": choices,
            "usage": self._usage(),
            "timings": timings(self._done[0]),
        }

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events of a stream; raises before the first if the first job cannot be done."""
        begun = False
        try:
            for index, (prompt, _) in enumerate(self._wanted):
                offset = 0
                async with await self._start(index) as answer:
                    text = await self._echo(prompt)
                    yield self._chunk(self._choice(index, text, [], 0, None))
                    begun = True
                    async for event in answer:
                        if not isinstance(event, Chunk):
                            yield KEEP_ALIVE
                            continue
                        self._note(event)
                        said = self._choice(
                            index, event.text, event.logprobs, offset, event.finish_reason
                        )
                        offset += sum(len(token.text) for token in event.logprobs)
                        done = event.completion
                        yield self._chunk(said, **({"timings": timings(done)} if done else {}))
        except Exception as error:
            if not begun:
                raise
            yield sse(openai_body(noted(error)))
            return
        if self._asked.wants_usage:
            yield sse({**self._head, "choices": [], "usage": self._usage()})
        yield DONE

    async def _start(self, index: int) -> Answer:
        job = self._asked.job(*self._wanted[index])
        return await self._context.core.start(job, admitted=index > 0)

    async def _echo(self, prompt: str | list[int]) -> str:
        if not self._asked.echo:
            return ""
        if isinstance(prompt, str):
            return prompt
        return await self._context.core.ask(lambda engine: engine.detokenize(prompt))

    def _note(self, chunk: Chunk) -> None:
        if chunk.completion is not None:
            self._done.append(chunk.completion)

    def _choice(
        self,
        index: int,
        text: str,
        tokens: list[TokenLogprob] | tuple[TokenLogprob, ...],
        offset: int,
        reason: str | None,
    ) -> dict[str, Any]:
        wanted = self._asked.logprobs is not None
        said = completion_logprobs(tokens, offset) if wanted else None
        return {"index": index, "text": text, "logprobs": said, "finish_reason": reason}

    def _chunk(self, choice: dict[str, Any], **more: Any) -> bytes:
        nothing = {"usage": None} if self._asked.wants_usage else {}
        return sse({**self._head, "choices": [choice], **nothing, **more})

    def _usage(self) -> dict[str, Any]:
        """Counts over all prompts; the choices of one prompt share it."""
        each = self._asked.n or 1
        parts = [usage(self._done[n : n + each]) for n in range(0, len(self._done), each)]
        total = {
            name: sum(part[name] for part in parts)
            for name in ("prompt_tokens", "completion_tokens", "total_tokens")
        }
        cached = sum(part["prompt_tokens_details"]["cached_tokens"] for part in parts)
        return {**total, "prompt_tokens_details": {"cached_tokens": cached}}


API = Api(
    [
        Endpoint(
            method="POST",
            path="/v1/completions",
            handler=complete,
            summary="Continue a text.",
            body=CompletionRequest,
            answers=((200, "application/json"), (200, "text/event-stream")),
        )
    ]
)
