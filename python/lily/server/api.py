"""What an API is to the server: endpoints, and how its errors look.

This file owns the plain data that routing, error pages and the OpenAPI page are made from, and what
every endpoint is given. It knows no API.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pydantic
from starlette.requests import Request
from starlette.responses import Response

from lily.gate.detectors import Detectors
from lily.server.consents import Consents
from lily.server.core import Core
from lily.server.errors import Problem, openai_body
from lily.server.host import Card
from lily.server.metrics import Metrics
from lily.server.settings import Settings


@dataclass(frozen=True)
class Context:
    """What endpoints work with."""

    core: Core
    settings: Settings
    metrics: Metrics
    gate_detectors: Detectors
    consents: Consents

    @property
    def card(self) -> Card:
        """What is known of the model. Raises ModelLoading before the first load is done."""
        return self.core.host.known_card()


Handler: TypeAlias = Callable[[Context, Request], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One method of one path.

    Attributes:
        handler: may raise LilyError, which becomes the API's error body.
        summary: one line for the OpenAPI page.
        body: model of the JSON body, if it takes one.
        answers: for each status that is not an error, its content type.
        errors: statuses of error bodies, besides those that any endpoint may give.
        open: whether it answers without an API key.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    body: type[pydantic.BaseModel] | None = None
    answers: Sequence[tuple[int, str]] = ((200, "application/json"),)
    errors: Sequence[int] = ()
    open: bool = False


@dataclass(frozen=True)
class Api:
    """Endpoints that share a shape of errors."""

    endpoints: Sequence[Endpoint]
    error_body: Callable[[Problem], dict[str, Any]] = openai_body
