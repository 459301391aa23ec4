"""Everything that is not an answer: models, health, metrics, tokens.

This file owns those endpoints and their shapes. It knows no chat.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from lily.server.api import Api, Context, Endpoint
from lily.server.core import ChatJob
from lily.server.errors import BadRequest, NotFound, NotSupported
from lily.server.hybrid import MODEL as HYBRID
from lily.server.metrics import CONTENT_TYPE
from lily.server.openai_requests import Message, Tool
from lily.server.wire import json_response, parse, read_json, unknown_fields, warning_headers


class TokenizeRequest(BaseModel):
    """The body of /tokenize: one of text (by any of its names) and messages."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: list[Message] | None = Field(None, min_length=1)
    tools: list[Tool] | None = None
    enable_thinking: bool | None = None
    special: bool | None = Field(None, description="Take control tokens in the text as such.")

    @model_validator(mode="after")
    def _one(self) -> TokenizeRequest:
        given = [name for name in ("prompt", "content", "messages") if name in self.given]
        if len(given) != 1:
            raise BadRequest(
                f"{' and '.join(given) or 'no text'} given, expected one of prompt, content and "
                "messages",
                param="prompt",
            )
        return self

    @property
    def given(self) -> dict[str, Any]:
        """Fields that are not null."""
        return {name: value for name, value in self if value is not None}


class DetokenizeRequest(BaseModel):
    """The body of /detokenize."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0)]]
    skip_special: bool | None = Field(None, description="Leave control tokens out; as it is: no.")


async def models(context: Context, request: Request) -> Response:
    """The one model, and lily/hybrid where it has a planner."""
    return json_response({"object": "list", "data": _models(context)})


async def model(context: Context, request: Request) -> Response:
    """The model by its name."""
    found = _models(context)
    for each in found:
        if request.path_params["name"] == each["id"]:
            return json_response(each)
    names = " and ".join(each["id"] for each in found)
    raise NotFound(f"there is no such model, only {names}", param="model")


def _models(context: Context) -> list[dict[str, Any]]:
    card = context.card
    hybrid = [HYBRID] if context.settings.hybrid.planner.is_set else []
    return [
        {
            "id": name,
            "object": "model",
            "created": card.created,
            "owned_by": "lily",
            "context_length": card.max_context,
            "max_model_len": card.max_context,
        }
        for name in (card.name, *hybrid)
    ]


async def health(context: Context, request: Request) -> Response:
    """Whether requests can be answered now."""
    core = context.core
    state = "stopping" if core.stopping else core.host.state
    fine = state in ("ready", "unloaded") or (state == "loading" and core.host.card is not None)
    body = {"status": "ok" if fine else state, "model": core.host.state}
    return json_response(body, 200 if fine else 503, {} if fine else {"retry-after": "1"})


async def metrics(context: Context, request: Request) -> Response:
    """Counters for Prometheus."""
    return Response(context.metrics.text(), media_type=CONTENT_TYPE)


async def tokenize(context: Context, request: Request) -> Response:
    """Token ids of a text, or of a chat as the model would get it."""
    asked = parse(TokenizeRequest, await read_json(request, context.settings))
    core, text = context.core, asked.prompt if asked.prompt is not None else asked.content
    if asked.messages is not None:
        job = ChatJob(
            prompt=[message.plain() for message in asked.messages],
            tools=[tool.model_dump(exclude_none=True) for tool in asked.tools or ()],
            enable_thinking=asked.enable_thinking,
        )
        ids = await core.tokens(job)
    else:
        special = bool(asked.special)
        ids = await core.ask(lambda engine: engine.tokenize(text or "", special=special))
    body = {"tokens": ids, "count": len(ids), "max_model_len": context.card.max_context}
    return json_response(body, headers=warning_headers(unknown_fields(asked)))


async def detokenize(context: Context, request: Request) -> Response:
    """The text of token ids."""
    asked = parse(DetokenizeRequest, await read_json(request, context.settings))
    size = context.card.vocab_size
    for place, token_id in enumerate(asked.tokens):
        if token_id >= size:
            where = f"tokens[{place}]"
            raise BadRequest(f"{where} is {token_id}, expected 0 to {size - 1}", param=where)
    skip = bool(asked.skip_special)
    text = await context.core.ask(lambda engine: engine.detokenize(asked.tokens, skip_special=skip))
    body = {"content": text, "prompt": text}
    return json_response(body, headers=warning_headers(unknown_fields(asked)))


async def embeddings(context: Context, request: Request) -> Response:
    """Not here: honest embeddings need a model that was trained to make them."""
    raise NotSupported("this model was not trained to make embeddings; use an embedding model")


API = Api(
    [
        Endpoint(method="GET", path="/v1/models", handler=models, summary="List the models."),
        Endpoint(
            method="GET",
            path="/v1/models/{name:path}",
            handler=model,
            summary="Show a model.",
            errors=(404,),
        ),
        Endpoint(
            method="GET",
            path="/health",
            handler=health,
            summary="Whether the server can answer; 503 while it loads or stops.",
            open=True,
        ),
        Endpoint(
            method="GET",
            path="/metrics",
            handler=metrics,
            summary="Counters for Prometheus.",
            answers=((200, "text/plain"),),
        ),
        Endpoint(
            method="POST",
            path="/tokenize",
            handler=tokenize,
            summary="Text or messages to token ids.",
            body=TokenizeRequest,
        ),
        Endpoint(
            method="POST",
            path="/detokenize",
            handler=detokenize,
            summary="Token ids to text.",
            body=DetokenizeRequest,
        ),
        Endpoint(
            method="POST",
            path="/v1/embeddings",
            handler=embeddings,
            summary="Not supported: 501.",
            answers=(),
            errors=(501,),
        ),
    ]
)
