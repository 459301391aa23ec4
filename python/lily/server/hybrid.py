"""The model ``lily/hybrid`` of /v1/chat/completions, and the consent that a run may ask for.

This file owns the wire shapes of hybrid runs: answers with a ``routing`` field that tells what ran
where and what left, events that ask, and the endpoint that takes the answers. The run itself is in
``lily.hybrid``; the worker is the server's own model.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from lily.cancel import CancelToken
from lily.errors import Cancelled
from lily.gate import Gate
from lily.hybrid import (
    Consent,
    ConsentRequest,
    Hybrid,
    HybridAnswer,
    HybridError,
    PlannerError,
    Refused,
)
from lily.server.api import Api, Context, Endpoint
from lily.server.errors import (
    BadRequest,
    PlannerFailed,
    RefusedByGate,
    ServerError,
    TimedOut,
    WorkerFailed,
    noted,
    openai_body,
)
from lily.server.openai_requests import ChatRequest
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

MODEL = "lily/hybrid"
_KNOWN = {"model", "messages", "stream", "n", "sensitive"}
_REFUSED = {"tools", "response_format", "regex", "grammar"}


class ConsentAnswer(BaseModel):
    """The body of /v1/hybrid/consent."""

    model_config = ConfigDict(strict=True, extra="forbid")

    id: str
    allow: bool


def parts_of(asked: ChatRequest) -> tuple[str, list[str]]:
    """(the task: the last message; private texts: the conversation before it)."""
    messages: Any = asked.job(0).prompt
    texts = [(str(message.get("role")), _text(message)) for message in messages]
    if not texts or texts[-1][0] != "user":
        raise BadRequest("the last message must be the user's", param="messages")
    before = "\n\n".join(f"{role}: {text}" for role, text in texts[:-1] if text)
    return texts[-1][1], [before] if before else []


async def complete(context: Context, request: Request, asked: ChatRequest) -> Response:
    """Answer a chat through a hybrid run, whole or streamed."""
    warnings = _ignored(asked)
    parts_of(asked)  # refused before a stream begins
    run = HybridRun(context, asked)
    if asked.stream:
        return await event_stream(request, run.events(), warnings)
    return json_response(await unless_gone(request, run.whole()), headers=warnings)


def _ignored(asked: ChatRequest) -> dict[str, str]:
    """Headers that name what a hybrid run does not look at. Raises BadRequest for what it must."""
    given = {name for name in asked.model_fields_set if getattr(asked, name, None) is not None}
    for name in sorted(given & _REFUSED):
        raise BadRequest(f"{name} is not supported by the model {MODEL}", param=name)
    if (asked.n or 1) > 1:
        raise BadRequest(f"n is {asked.n}, expected 1 for the model {MODEL}", param="n")
    ignored = sorted(given - _KNOWN)
    return warning_headers([f"{MODEL} ignores {', '.join(ignored)}"] if ignored else [])


def _text(message: Any) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


@dataclass(frozen=True)
class _Question:
    """What a person is asked, under the id of the answer."""

    id: str
    request: ConsentRequest

    def shown(self) -> dict[str, Any]:
        """For JSON."""
        return {"id": self.id, **asdict(self.request), "reasons": list(self.request.reasons)}


_Event: TypeAlias = "str | HybridAnswer | _Question"


def _problem(error: HybridError) -> ServerError:
    kinds = {Refused: RefusedByGate, PlannerError: PlannerFailed}
    return kinds.get(type(error), WorkerFailed)(str(error))


@dataclass
class HybridRun:
    """One request, on a thread of its own."""

    context: Context
    asked: ChatRequest
    _head: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion.chunk" if self.asked.stream else "chat.completion",
            "created": int(time.time()),
            "model": MODEL,
        }

    async def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed. Nobody can be asked."""
        answer = None
        async with contextlib.aclosing(self._events(can_ask=False)) as events:
            async for event in events:
                if isinstance(event, HybridAnswer):
                    answer = event
        assert answer is not None, "a run that does not raise has an answer"
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {**self._head, "choices": [choice], "routing": _routing(answer)}

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events of a stream; raises before the first if nothing can be done at all."""
        begun = False
        try:
            async with contextlib.aclosing(self._events(can_ask=True)) as events:
                async for event in events:
                    if not begun:
                        begun = True
                        yield self._chunk({"role": "assistant", "content": ""})
                    yield self._event(event)
        except Exception as error:
            if not begun:
                raise
            yield sse(openai_body(noted(error)))
            return
        yield DONE

    async def _events(self, *, can_ask: bool) -> AsyncGenerator[_Event, None]:
        """Pieces of text, "" as a sign of life, questions, and the answer last.

        When it is closed the run is cancelled, and its thread waited for.
        """
        task, texts = parts_of(self.asked)
        settings, cancel = self.context.settings, CancelToken()
        questions: asyncio.Queue[_Question] = asyncio.Queue()
        consent = self._consent(questions, cancel) if can_ask else None
        async with self.context.core.borrow() as engine:
            hybrid = Hybrid(settings.hybrid, engine, self._gate, consent=consent)
            pieces = hybrid.stream(
                task, texts=texts, sensitive=bool(self.asked.sensitive), cancel=cancel
            )
            thread = ThreadPoolExecutor(1, "lily-hybrid")
            loop, longest = asyncio.get_running_loop(), self.context.settings.request_timeout_s
            timer = loop.call_later(longest, cancel.cancel)
            try:
                found: str | HybridAnswer = ""
                while not isinstance(found, HybridAnswer):
                    step = asyncio.wrap_future(thread.submit(_next, pieces))
                    async for event in self._meanwhile(step, questions):
                        yield event
                    found = step.result()
                    yield found
            except HybridError as error:
                raise _problem(error) from error
            except Cancelled as error:
                raise TimedOut(f"the run took longer than {longest:g} s") from error
            finally:
                timer.cancel()
                cancel.cancel()
                last = asyncio.wrap_future(thread.submit(pieces.close))
                thread.shutdown(wait=False)
                await asyncio.wait([last])

    async def _meanwhile(
        self, step: asyncio.Future[Any], questions: asyncio.Queue[_Question]
    ) -> AsyncGenerator[_Event, None]:
        """Questions and signs of life until the step is done."""
        while not step.done():
            question = asyncio.ensure_future(questions.get())
            try:
                await asyncio.wait(
                    [step, question],
                    timeout=self.context.settings.keep_alive_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if question.done():
                    yield question.result()
                elif not step.done():
                    yield ""
            finally:
                question.cancel()

    def _consent(self, questions: asyncio.Queue[_Question], cancel: CancelToken) -> Consent:
        loop = asyncio.get_running_loop()

        def consent(request: ConsentRequest) -> bool:
            def tell(number: str) -> None:
                said = _Question(number, request)
                loop.call_soon_threadsafe(questions.put_nowait, said)

            return self.context.consents.ask(tell, cancel)

        return consent

    def _gate(self) -> Gate:
        return Gate(self.context.settings.gate, detectors=self.context.gate_detectors)

    def _event(self, event: _Event) -> bytes:
        if isinstance(event, _Question):
            return sse({**self._head, "choices": [], "routing": {"consent": event.shown()}})
        if isinstance(event, HybridAnswer):
            done = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
            return sse({**self._head, "choices": [done], "routing": _routing(event)})
        return self._chunk({"content": event}) if event else KEEP_ALIVE

    def _chunk(self, delta: dict[str, Any]) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return sse({**self._head, "choices": [choice]})


def _next(pieces: Generator[str, None, HybridAnswer]) -> str | HybridAnswer:
    try:
        return next(pieces)
    except StopIteration as end:
        answer: HybridAnswer = end.value
        return answer


def _routing(answer: HybridAnswer) -> dict[str, Any]:
    receipt = answer.receipt
    return {
        "where": answer.where,
        "steps": receipt.routing(),
        "summary": receipt.summary(),
        "sent_bytes": receipt.sent_bytes,
    }


async def consent(context: Context, request: Request) -> Response:
    """Take a person's answer to a question of a running stream."""
    asked = parse(ConsentAnswer, await read_json(request, context.settings, private=True))
    if not context.consents.settle(asked.id, asked.allow):
        raise BadRequest("no question of this id waits for an answer", param="id")
    return json_response({"id": asked.id, "allow": asked.allow})


API = Api(
    [
        Endpoint(
            method="POST",
            path="/v1/hybrid/consent",
            handler=consent,
            summary="Answer a question of a running hybrid stream.",
            body=ConsentAnswer,
        )
    ]
)
