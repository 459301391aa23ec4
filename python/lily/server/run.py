"""A server process: listens, loads, serves, and ends cleanly.

This file owns signals, slow connections and exit codes. It knows no endpoint.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from lily.engine import Engine
from lily.errors import LilyError
from lily.server.app import create_app
from lily.server.core import Core
from lily.server.errors import BadRequest, openai_body, problem
from lily.server.settings import Settings, is_loopback
from lily.server.wire import to_json


class ListenError(LilyError, OSError):
    """The address is taken, or not one of this machine."""


_MAX_CONNECTIONS = 512
_SWITCH_S = 0.0005
_MAX_HEADER_BYTES = 64 * 1024
_log = logging.getLogger("lily.server")


def serve(load: Callable[[], Engine], settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises what loading raises, or ListenError."""
    failures: list[BaseException] = []

    def failed(error: BaseException) -> None:
        failures.append(error)
        server.should_exit = True

    # A step of a small model is shorter than Python's 5 ms: threads that hold the interpreter so
    # long between steps would leave the device idle.
    sys.setswitchinterval(_SWITCH_S)
    server = make_server(load, settings, on_failure=failed)
    sock = _bound(settings)
    server.run(sockets=[sock])
    if failures:
        raise failures[0]


def _bound(settings: Settings) -> socket.socket:
    """A socket that listens already: uvicorn would print its own error and end the process."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((settings.host.strip("[]"), settings.port))
        made.listen()
    except OSError as error:
        made.close()
        where = f"{settings.host} port {settings.port}"
        raise ListenError(f"cannot listen on {where}: {error.strerror}") from error
    return made


def make_server(
    load: Callable[[], Engine], settings: Settings, on_failure: Callable[[BaseException], None]
) -> uvicorn.Server:
    """A server that is ready to ``run``, also in a thread that gets no signals."""
    app = create_app(load, settings, clock=time.time, on_failure=on_failure)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=_protocol(settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        # Time for the last events to go out after the jobs were failed.
        timeout_graceful_shutdown=int(settings.grace_s) + 5,
    )
    return _Server(config, app.state.context.core)


class _Server(uvicorn.Server):
    """Drains on the first signal and leaves at once on the second Ctrl-C."""

    def __init__(self, config: uvicorn.Config, core: Core) -> None:
        super().__init__(config)
        self._core = core
        self._draining: asyncio.Future[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        for one in sockets or ():
            host, port = one.getsockname()[:2]
            _log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        settings = self._core.settings
        if not is_loopback(settings.host) and not settings.api_keys:
            _log.warning("whoever can reach this address may use the model: no --api-key is set")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._draining = asyncio.ensure_future(self._core.drain(self._core.settings.grace_s))
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The signal is not raised again at the end, as uvicorn would: to end on request is success.
        if self.should_exit and sig == signal.SIGINT:
            print("lily: stopped by force", file=sys.stderr)
            os._exit(130)  # threads may be deep in a step; nothing here needs saving
        self.should_exit = True


def _protocol(settings: Settings) -> type[H11Protocol]:
    """uvicorn's protocol, without patience for clients that send or read nothing."""
    head_s, send_s = settings.read_timeout_s, settings.send_timeout_s

    class Protocol(H11Protocol):
        _head_limit: asyncio.TimerHandle | None = None
        _read_limit: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer("_head_limit")
            self._stop_timer("_read_limit")
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._between_requests:
                self._expect_head()
            else:
                self._stop_timer("_head_limit")

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stop_timer("_read_limit")
            # Not ``close``, which would wait for the client to read what is buffered.
            self._read_limit = self.loop.call_later(send_s, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_timer("_read_limit")

        def send_400_response(self, msg: str) -> None:
            body = to_json(openai_body(problem(BadRequest(msg))))
            head = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json"
            self.transport.write(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            self.transport.close()

        @property
        def _between_requests(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _expect_head(self) -> None:
            if self._head_limit is None:
                self._head_limit = self.loop.call_later(head_s, self._no_head)

        def _no_head(self) -> None:
            self._head_limit = None
            if self._between_requests:
                self.transport.close()

        def _stop_timer(self, name: str) -> None:
            timer = getattr(self, name)
            if timer is not None:
                timer.cancel()
                setattr(self, name, None)

    return Protocol
