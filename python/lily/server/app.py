"""The ASGI application: all APIs behind one guard.

This file owns the list of APIs and the order of what surrounds them. It knows no API's shapes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lily.engine import Engine
from lily.gate.detectors import BuiltIn
from lily.server import (
    admin,
    anthropic_messages,
    gate,
    hybrid,
    openai_chat,
    openai_completions,
    openapi,
    page,
    responses,
)
from lily.server.api import Api, Context
from lily.server.consents import Consents
from lily.server.core import Core
from lily.server.guard import Guard
from lily.server.host import ModelHost
from lily.server.metrics import Metrics
from lily.server.report import Report
from lily.server.settings import Settings

APIS: tuple[Api, ...] = (
    openai_chat.API,
    openai_completions.API,
    responses.API,
    anthropic_messages.API,
    gate.API,
    hybrid.API,
    admin.API,
)
_log = logging.getLogger("lily.server")


def create_app(
    load: Callable[[], Engine],
    settings: Settings,
    *,
    clock: Callable[[], float],
    on_failure: Callable[[BaseException], None] = lambda error: None,
) -> Starlette:
    """The application; ``app.state.context`` is what its endpoints work with.

    ``load`` makes the engine, with as many sessions as ``settings.parallel``. It is called in the
    background when the application starts; if it raises, ``on_failure`` is told.
    """
    metrics = Metrics()
    host = ModelHost(load, idle_unload_s=settings.idle_unload_s, clock=clock)
    core = Core(host, settings, on_end=Report(metrics, settings.log_text))
    metrics.watch(core)
    context = Context(core, settings, metrics, BuiltIn(settings.gate.country), Consents())
    apis = (*APIS, page.API, openapi.api(APIS))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        loading = asyncio.ensure_future(_load(host, on_failure))
        try:
            yield
        finally:
            await core.close()
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)

    app = Starlette(
        routes=[
            Route(e.path, functools.partial(e.handler, context), methods=[e.method])
            for api in apis
            for e in api.endpoints
        ],
        middleware=_middleware(apis, settings, metrics),
        exception_handlers={HTTPException: _pass_on},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.context = context
    return app


def _middleware(apis: tuple[Api, ...], settings: Settings, metrics: Metrics) -> list[Middleware]:
    guard = Middleware(
        Guard,
        settings=settings,
        bodies={e.path: api.error_body for api in apis for e in api.endpoints},
        open_paths=[e.path for api in apis for e in api.endpoints if e.open],
        count=metrics.request,
    )
    if not settings.cors_origins:
        return [guard]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "x-lily-warning", "retry-after"],
    )
    return [cors, guard]


async def _pass_on(request: Request, error: Exception) -> Response:
    raise error  # the guard answers it, in the shape of the API


async def _load(host: ModelHost, on_failure: Callable[[BaseException], None]) -> None:
    try:
        await host.start()
    except Exception as error:
        _log.error("the model could not be loaded: %s", error)
        on_failure(error)
