"""GET /: a page to chat with the model, from files in the package.

This file owns which files there are and what a browser may do with them: nothing from elsewhere, no
inline script, no markup made from text. The page itself uses /v1/chat/completions as any client.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from lily.server.api import Api, Context, Endpoint, Handler

_TYPES = {
    "index.html": "text/html",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "answer.js": "text/javascript",
    "markdown.js": "text/javascript",
    "stream.js": "text/javascript",
    "gate.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        # A browser that knows this refuses to make markup from any string, ours included.
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


@cache
def _read(name: str) -> bytes:
    return (files("lily.server") / "page" / name).read_bytes()


def _handler(name: str) -> Handler:
    async def show(context: Context, request: Request) -> Response:
        return Response(_read(name), headers=_HEADERS, media_type=_TYPES[name])

    return show


def _endpoint(name: str) -> Endpoint:
    return Endpoint(
        method="GET",
        path="/" if name == "index.html" else f"/page/{name}",
        handler=_handler(name),
        summary="The chat page." if name == "index.html" else "A part of the chat page.",
        answers=((200, _TYPES[name]),),
        open=True,  # it asks for the key itself
    )


API = Api([_endpoint(name) for name in _TYPES])
