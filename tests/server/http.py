"""Plain HTTP for tests: one request over the standard library, and sockets that misbehave.

This file knows HTTP and server-sent events, and no API.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Reply:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """OpenAI's error; its four fields and nothing else."""
        assert set(self.json) == {"error"}
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    @property
    def events(self) -> list[Any]:
        """The data of each server-sent event; "[DONE]" as it is."""
        return list(events_in(self.body))


def events_in(body: bytes) -> Iterator[Any]:
    """The data of each whole event."""
    for block in body.split(b"\n\n"):
        if block.startswith(b"data: "):
            data = block.removeprefix(b"data: ")
            yield "[DONE]" if data == b"[DONE]" else json.loads(data)


class Peer:
    """Where a server listens."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> Reply:
        """One request; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, named, response.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Reply:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any, **options: Any) -> Reply:
        return self.request("POST", path, body, **options)

    def chat(self, text: str = "Hi", **fields: Any) -> Reply:
        """A chat of one message, greedy and without thinking."""
        return self.post("/v1/chat/completions", chat(text, **fields))

    def connect(self, receive_bytes: int | None = None) -> socket.socket:
        """A bare connection; the system holds about ``receive_bytes`` that were not read."""
        made = socket.socket()
        made.settimeout(60)
        if receive_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.connect(("127.0.0.1", self.port))
        return made

    def send(self, body: dict[str, Any], receive_bytes: int | None = None) -> socket.socket:
        """A connection on which a chat was asked for and nothing was read."""
        made = self.connect(receive_bytes)
        data = json.dumps(body).encode()
        made.sendall(head("/v1/chat/completions", len(data)) + data)
        return made

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)


def chat(text: str = "Hi", **fields: Any) -> dict[str, Any]:
    """The body of a chat: greedy and without thinking, unless told otherwise."""
    base = {"messages": [{"role": "user", "content": text}], "temperature": 0}
    return {**base, "enable_thinking": False, **fields}


def head(path: str, length: int, method: str = "POST") -> bytes:
    """The head of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "Content-Type: application/json", "", ""]).encode()


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """What arrives, up to and with ``mark`` or to the end."""
    got = bytearray()
    while True:
        piece = connection.recv(1 << 20)
        got += piece
        if not piece or mark in got[-len(piece) - len(mark) :]:
            return bytes(got)


def read_all(connection: socket.socket) -> bytes:
    """What arrives until the server closes."""
    got = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return got
        if not piece:
            return got
        got += piece
