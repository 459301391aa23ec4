"""What every API needs between HTTP and a job: bodies in, JSON and events out.

This file owns reading a body within its limits, refusing it by the name of the field, noticing that
the client has gone, and server-sent events. It knows no API's shapes and no engine.

All JSON that leaves is ASCII: no transport can cut a character in two, and no client that splits
lines at U+2028 or U+0085 can be fooled.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import Any, TypeVar

import anyio
import pydantic
import pydantic_core
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lily.server.errors import BadRequest, TooLarge, TooSlow
from lily.server.settings import Settings

_T = TypeVar("_T")
_Model = TypeVar("_Model", bound=pydantic.BaseModel)
_log = logging.getLogger("lily.server")

WARNING_HEADER = "x-lily-warning"
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


class ClientGone(Exception):  # noqa: N818  (no error of anybody)
    """The client has closed its connection."""


def to_json(value: Any) -> bytes:
    """Compact JSON in ASCII."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A response with a JSON body."""
    return Response(to_json(value), status, dict(headers or {}), "application/json")


def sse(value: Any, name: str | None = None) -> bytes:
    """One server-sent event with JSON as its data."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + to_json(value) + b"\n\n"


async def read_json(
    request: Request, settings: Settings, *, private: bool = False
) -> dict[str, Any]:
    """The JSON object in a request's body; one that is private is never logged.

    Raises TooLarge, TooSlow, BadRequest, or ClientGone.
    """
    body = await _read(request, settings)
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if settings.log_text and not private:
        _log.info("body of %s: %s", request.url.path, to_json(value).decode())
    if not isinstance(value, dict):
        raise BadRequest(f"the body is a JSON {type(value).__name__}, expected an object")
    return value


async def _read(request: Request, settings: Settings) -> bytes:
    limit = settings.max_body_bytes
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise TooLarge(f"the body has {announced[:20]} bytes, expected at most {limit}")
    body = bytearray()
    try:
        with anyio.fail_after(settings.read_timeout_s):
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise TooLarge(f"the body has more than {limit} bytes, the most allowed")
    except TimeoutError:
        raise TooSlow(f"the body took longer than {settings.read_timeout_s:g} s") from None
    except ClientDisconnect:
        raise ClientGone from None
    return bytes(body)


def parse(model: type[_Model], body: Mapping[str, Any]) -> _Model:
    """Check a body against a model. Raises BadRequest that names the first bad field."""
    try:
        return model.model_validate(body)
    except pydantic.ValidationError as error:
        # Of a value that fits no arm of a union, the deepest complaint says most.
        found = error.errors(include_url=False, include_context=False)
        first = max(found, key=lambda one: len(one["loc"]))
        where = _field(first["loc"], body)
        given = _shown(first["input"])
        text = first["msg"].removeprefix("Value error, ")
        text = text[:1].lower() + text[1:]
        raise BadRequest(f"{where or 'the body'}: {text} (given: {given})", param=where) from None


def _field(location: tuple[int | str, ...], body: Any) -> str | None:
    """``messages[0].role``; without the names that pydantic gives to arms of a union."""
    where = ""
    for place, step in enumerate(location):
        if isinstance(body, Mapping):
            found = step in body
            missing = not found and place == len(location) - 1
        else:
            found = isinstance(body, list) and isinstance(step, int) and step < len(body)
            missing = False
        if found or missing:
            where += f"[{step}]" if isinstance(step, int) else f".{step}" if where else step
        if found:
            body = body[step]
    return where or None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def warning_headers(warnings: list[str]) -> dict[str, str]:
    """A header that tells of what was ignored; safe whatever the client sent."""
    if not warnings:
        return {}
    text = "; ".join(re.sub(r"[^ -~]", "?", warning)[:200] for warning in warnings)
    return {WARNING_HEADER: text[:1000].strip()}  # HTTP allows no spaces at the ends of a value


def unknown_fields(body: pydantic.BaseModel) -> list[str]:
    """A warning that names the fields which the model of a request does not have."""
    names = sorted(body.model_extra or {})
    if not names:
        return []
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return [f"ignored unknown fields: {', '.join(name[:40] for name in names[:8])}{more}"]


async def until_gone(receive: Receive) -> None:
    """Return when the client has closed its connection; the body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Awaitable[_T]) -> _T:
    """The result of ``work``, which is cancelled when the client goes away.

    Raises ClientGone, and what ``work`` raises.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(until_gone(request.receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def event_stream(
    request: Request,
    events: AsyncGenerator[bytes, None],
    headers: Mapping[str, str] | None = None,
) -> EventStream:
    """A response with these events, begun only when the first is there.

    So what ``events`` raises before its first event can still become a status of its own; later
    it must end with an event that tells of the error.
    """
    try:
        first = await unless_gone(request, anext(events))
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events, headers)


class EventStream(Response):
    """A response of server-sent events: ``first`` and then all of ``events``.

    They are advanced only as fast as the client reads, and closed when the client goes away
    or the events end.
    """

    def __init__(
        self,
        first: bytes,
        events: AsyncGenerator[bytes, None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.media_type = "text/event-stream"
        # Proxies must neither keep the events back nor change them.
        own = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}
        self.init_headers({**own, **(headers or {})})
        self._first = first
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = asyncio.ensure_future(self._send(send))
        watch = asyncio.ensure_future(until_gone(receive))
        try:
            await asyncio.wait({sender, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            sender.cancel()
            await asyncio.gather(sender, watch, return_exceptions=True)
        if not sender.cancelled():
            sender.result()  # raises what the events raised, which is a mistake of the API

    async def _send(self, send: Send) -> None:
        async with contextlib.aclosing(self._events):
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            piece = {"type": "http.response.body", "more_body": True}
            await send({**piece, "body": self._first})
            async for event in self._events:
                await send({**piece, "body": event})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
