"""A planner that follows a script, behind a real socket: an OpenAI-compatible server on loopback.

It keeps every byte that reached it, headers and all, so that tests can say what left. A script is a
function from the conversation to one of the replies below.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Say:
    """An answer in words, streamed in pieces of `cut` characters."""

    text: str
    cut: int = 7


@dataclass(frozen=True)
class Use:
    """Tool calls: (name, arguments), the arguments as JSON text or anything to be dumped."""

    calls: Sequence[tuple[str, Any]]


@dataclass(frozen=True)
class Fail:
    """A fault: a status, or "drop" (before an answer), "half" (within it), "hang"."""

    how: int | str
    headers: str = ""


@dataclass(frozen=True)
class Raw:
    """These events, whatever they are."""

    events: bytes


Reply = Say | Use | Fail | Raw
_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
Script = Callable[[list[dict[str, Any]]], Reply]


class ScriptedPlanner:
    """Serves until closed. ``received`` holds the raw bytes of every request."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.received: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> ScriptedPlanner:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # wakes the thread that waits for a connection
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def bodies(self) -> list[bytes]:
        """Bodies of all requests."""
        return [raw.split(b"\r\n\r\n", 1)[1] for raw in self.received]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while raw := _read_request(connection):
                self.received.append(raw)
                messages = json.loads(raw.split(b"\r\n\r\n", 1)[1])["messages"]
                reply = self.script(messages)
                if isinstance(reply, Fail):
                    _fail(connection, reply)
                    return
                if isinstance(reply, Raw):
                    connection.sendall(_HEAD.encode() + reply.events)
                    return
                _stream(connection, _deltas(reply))
                return


def _read_request(connection: socket.socket) -> bytes:
    raw = b""
    while b"\r\n\r\n" not in raw:
        part = connection.recv(65536)
        if not part:
            return b""
        raw += part
    head, body = raw.split(b"\r\n\r\n", 1)
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def _deltas(reply: Say | Use) -> list[dict[str, Any]]:
    if isinstance(reply, Say):
        pieces = range(0, len(reply.text), reply.cut)
        return [{"content": reply.text[at : at + reply.cut]} for at in pieces]
    deltas = []
    for index, (name, arguments) in enumerate(reply.calls):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        start = {"name": name, "arguments": text[:5]}
        deltas.append({"tool_calls": [{"index": index, "id": f"c{index}", "function": start}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": text[5:]}}]})
    return deltas


def _stream(connection: socket.socket, deltas: list[dict[str, Any]], *, end: bool = True) -> None:
    lines = [f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n" for delta in deltas]
    connection.sendall((_HEAD + "".join(lines) + ("data: [DONE]\n\n" if end else "")).encode())


def _fail(connection: socket.socket, fault: Fail) -> None:
    if isinstance(fault.how, int):
        head = f"HTTP/1.1 {fault.how} No\r\n{fault.headers}content-length: 0\r\n"
        connection.sendall(f"{head}connection: close\r\n\r\n".encode())
    elif fault.how == "half":
        _stream(connection, [{"content": "The answer is"}], end=False)
    elif fault.how == "hang":
        with suppress(OSError):
            connection.recv(1)  # until the client has had enough
