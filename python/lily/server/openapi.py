"""The OpenAPI page, made from the list of endpoints and the models of their bodies.

This file owns the document's form; it describes what is there and adds nothing. It knows no API.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from lily.server.api import Api, Context, Endpoint
from lily.server.wire import json_response

# Statuses that the guard or the body's reader may answer with.
_ALWAYS = (401, 403, 500, 503)
_WITH_BODY = (400, 408, 413, 504)
_MEANING = {
    200: "The answer.",
    400: "The request is not valid; param names the field.",
    401: "The API key is missing or wrong.",
    403: "The Host or Origin header is not allowed.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    500: "The server failed.",
    501: "Not supported.",
    503: "Busy, loading or shutting down; try again after Retry-After seconds.",
    504: "The answer took too long.",
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


def document(apis: Sequence[Api]) -> dict[str, Any]:
    """The OpenAPI document of these APIs."""
    endpoints = [endpoint for api in apis for endpoint in api.endpoints]
    bodies = [(e.body, "validation") for e in endpoints if e.body is not None]
    _, schemas = models_json_schema(bodies, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, path)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lily", "version": "1", "description": "One model on one machine."},
        "paths": paths,
        "components": {
            "schemas": {**schemas.get("$defs", {}), "Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(endpoint: Endpoint, path: str) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, media in endpoint.answers:
        said = responses.setdefault(str(status), {"description": _MEANING[200], "content": {}})
        # Of a stream, tools check event by event, each with its name and data.
        kind = "object" if media in ("application/json", "text/event-stream") else "string"
        said["content"][media] = {"schema": {"type": kind}}
    errors = {*endpoint.errors, *_ALWAYS, *(_WITH_BODY if endpoint.body else ())}
    for status in sorted(errors):
        schema = {"schema": {"$ref": "#/components/schemas/Error"}}
        if endpoint.open:  # /health answers 503 with its own body
            schema = {"schema": {"type": "object"}}
        said = {"description": _MEANING[status], "content": {"application/json": schema}}
        responses[str(status)] = said
    operation: dict[str, Any] = {"summary": endpoint.summary, "responses": responses}
    if endpoint.body is not None:
        reference = {"$ref": f"#/components/schemas/{endpoint.body.__name__}"}
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": reference}},
        }
    names = re.findall(r"\{(\w+)\}", path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    return operation


def api(apis: Sequence[Api]) -> Api:
    """The endpoints that show the document of ``apis``, for programs and for people."""
    made = document(apis)

    async def as_json(context: Context, request: Request) -> Response:
        return json_response(made)

    async def as_page(context: Context, request: Request) -> Response:
        return HTMLResponse(_page(made))

    return Api(
        [
            Endpoint(
                method="GET", path="/openapi.json", handler=as_json, summary="This, for programs."
            ),
            Endpoint(
                method="GET",
                path="/docs",
                handler=as_page,
                summary="This, for people.",
                answers=((200, "text/html"),),
            ),
        ]
    )


def _page(made: dict[str, Any]) -> str:
    """Plain HTML without scripts and outside resources."""
    parts = ["<!doctype html><meta charset=utf-8><title>Lily</title>"]
    parts.append(
        "<style>body{font:16px/1.5 system-ui;max-width:52rem;margin:2rem auto;padding:0 1rem}"
    )
    parts.append(
        "pre{background:#8881;padding:1rem;overflow:auto}:root{color-scheme:light dark}</style>"
    )
    parts.append('<h1>Lily</h1><p>For programs: <a href="/openapi.json">openapi.json</a></p>')
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            summary = html.escape(operation["summary"])
            parts.append(
                f"<h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{summary}</p>"
            )
            body = operation.get("requestBody")
            if body:
                name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                schema = json.dumps(made["components"]["schemas"][name], indent=2)
                parts.append(
                    f"<details><summary>{name}</summary><pre>{html.escape(schema)}</pre></details>"
                )
    return "\n".join(parts)
