"""POST /v1/gate: what may happen with a text or a chat before it leaves this machine.

This file owns the endpoint's shapes. ``lily.gate`` judges, in a thread of its own; neither the text
nor what was found in it ever reaches the server's log. The model is not needed.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from lily.gate import Category, Gate, Verdict
from lily.gate import Context as GateContext
from lily.gate.receipt import as_json
from lily.server.api import Api, Context, Endpoint
from lily.server.errors import BadRequest
from lily.server.wire import json_response, parse, read_json, unless_gone


class GateRequest(BaseModel):
    """The body of /v1/gate: one of text and messages. Unknown fields are refused, not ignored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    text: str | None = None
    messages: list[dict[str, Any]] | None = Field(None, min_length=1)
    destination: str = Field("cloud", min_length=1, description="A name of the gate's settings.")
    can_ask: bool = Field(True, description="Whether a person can be asked now.")
    can_run_locally: bool = Field(True, description="Whether a local model can do the task.")
    publishes: bool = Field(False, description="Whether others will read it.")
    needs: list[Annotated[Category, Field(strict=False)]] = Field(
        default=[], description="Categories whose true values the task cannot do without."
    )

    @model_validator(mode="after")
    def _one(self) -> GateRequest:
        if (self.text is None) == (self.messages is None):
            given = "neither" if self.text is None else "both"
            raise BadRequest(f"{given} given, expected one of text and messages", param="text")
        return self


async def inspect(context: Context, request: Request) -> Response:
    """The verdict, with masked text or messages and what the placeholders stand for."""
    asked = parse(GateRequest, await read_json(request, context.settings, private=True))
    return json_response(await unless_gone(request, asyncio.to_thread(_judge, context, asked)))


def _judge(context: Context, asked: GateRequest) -> dict[str, Any]:
    gate = Gate(context.settings.gate, detectors=context.gate_detectors)
    step = GateContext(
        can_ask=asked.can_ask,
        can_run_locally=asked.can_run_locally,
        publishes=asked.publishes,
        needs=frozenset(asked.needs),
    )
    if asked.messages is None:
        verdict = gate.inspect(asked.text or "", asked.destination, step)
        return _body(verdict)
    chat = gate.inspect_messages(asked.messages, asked.destination, step)
    return {**_body(chat.verdict), "messages": chat.messages, "places": list(chat.places)}


def _body(verdict: Verdict) -> dict[str, Any]:
    return {"object": "gate.verdict", **as_json(verdict), "mapping": dict(verdict.mapping)}


API = Api(
    [
        Endpoint(
            method="POST",
            path="/v1/gate",
            handler=inspect,
            summary="Judge what may leave this machine.",
            body=GateRequest,
        )
    ]
)
