"""Who may ask, and what is said of it in the log.

This file owns the checks before any endpoint (host name, web origin, API key), the answer to every
error that an endpoint raises, and one log line per request, without text of the user. It knows no
API but the shape of its errors.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lily.server.errors import (
    Forbidden,
    MethodNotAllowed,
    NotFound,
    Problem,
    ServerError,
    Unauthorized,
    noted,
    openai_body,
    problem,
)
from lily.server.settings import Settings
from lily.server.wire import ClientGone, json_response

_log = logging.getLogger("lily.server")
_GONE = 499  # as nginx writes it: the client did not wait for the answer


class Guard:
    """ASGI middleware around the router.

    Args:
        bodies: for each known path, how its API writes errors.
        open_paths: those that need no API key.
        count: called with path ("other" if unknown) and status of every request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        bodies: Mapping[str, Callable[[Problem], dict[str, Any]]],
        open_paths: Sequence[str],
        count: Callable[[str, int], None],
    ) -> None:
        self._app = app
        self._hosts = settings.checked_hosts
        self._origins = settings.cors_origins
        self._keys = [_digest(key) for key in settings.api_keys]
        self._bodies = bodies
        self._open = frozenset(open_paths)
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{uuid.uuid4().hex}"
        status = 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        began = time.perf_counter()
        try:
            self._check(scope)
            await self._app(scope, receive, send_noted)
        except ClientGone:
            status = _GONE
        except Exception as error:
            found = self._found(error)
            if status:  # the response has begun; cutting it off is all that can be said
                raise RuntimeError("a response that had begun was cut off") from None
            body = self._bodies.get(scope["path"], openai_body)(found)
            more = error.headers if isinstance(error, HTTPException) else None
            response = json_response(body, found.status, {**found.headers, **(more or {})})
            await response(scope, receive, send_noted)
        finally:
            path = scope["path"] if scope["path"] in self._bodies else "other"
            self._count(path, status or _GONE)
            seconds = time.perf_counter() - began
            _log.info(
                "%s %s %d %.3f s %s", _method(scope), path, status or _GONE, seconds, request_id
            )

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts is not None and _name(host) not in self._hosts:
            raise Forbidden("the Host header names another host; allow it with --allowed-host")
        origin = headers.get("origin")
        if origin is not None and not self._allows(origin, host):
            raise Forbidden("this web page may not use the server; allow it with --cors-origin")
        if self._keys and scope["path"] not in self._open:
            self._check_key(headers)

    def _allows(self, origin: str, host: str) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        return origin.partition("://")[2].lower() == host.lower()

    def _check_key(self, headers: Headers) -> None:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get("x-api-key", "")
        given = _digest(key.strip())
        # All are compared, in constant time, so that the time says nothing about any.
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        if not any(matches):
            raise Unauthorized

    @staticmethod
    def _found(error: Exception) -> Problem:
        if isinstance(error, HTTPException):
            kinds: dict[int, type[ServerError]] = {404: NotFound, 405: MethodNotAllowed}
            kind = kinds.get(error.status_code)
            texts = {404: "there is nothing at this path", 405: "this path has no such method"}
            if kind is not None:
                return problem(kind(texts[error.status_code]))
            return Problem(error.status_code, error.detail, "invalid_request_error")
        return noted(error)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _method(scope: Scope) -> str:
    method = scope["method"]
    return method if method.isalpha() and len(method) < 10 else "other"
