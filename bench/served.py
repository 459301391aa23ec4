"""A ``lily serve`` process to measure, and the requests it is measured with.

This file owns starting and stopping it, and one streamed request with its times. It knows no
figure.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import ROOT

_START_S = 600


class Served:
    """A server on a free port of the loopback; use it in ``with``."""

    def __init__(self, model: str | None, options: list[str]) -> None:
        self._log = tempfile.NamedTemporaryFile(suffix=".log")  # noqa: SIM115
        words = [*([model] if model else []), "--port", "0", *options]
        command = [sys.executable, "-m", "lily", "serve", *words]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=self._log, stderr=subprocess.STDOUT
        )
        self.port = int(self._said(r"listening on http://\S+:(\d+)")[1])
        self.model = self._said(r"model ready: (.*)")[1]

    def _said(self, pattern: str) -> re.Match[str]:
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self.process.poll() is None:
            found = re.search(pattern, Path(self._log.name).read_text())
            if found:
                return found
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start: {Path(self._log.name).read_text()[-2000:]}")

    def send(self, body: dict[str, Any]) -> socket.socket:
        """A connection on which a chat was asked for."""
        data = json.dumps(body).encode()
        made = socket.create_connection(("127.0.0.1", self.port), timeout=600)
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        made.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return made

    def metric(self, name: str) -> float:
        """A metric without labels."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=600) as made:
            made.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: made.recv(65536), b"")).decode()
        found = re.search(rf"^{name} (\S+)", text, re.MULTILINE)
        if found is None:
            raise RuntimeError(f"the server has no metric {name}")
        return float(found[1])

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)
        self._log.close()


@dataclass(frozen=True)
class Timed:
    """One streamed answer, as its client saw it."""

    first_s: float
    total_s: float
    tokens: int


def timed_chat(server: Served, text: str, tokens: int) -> Timed:
    """Ask, read everything, and note when the first text and the last byte came."""
    body = {
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": tokens,
        "ignore_eos": True,
        "enable_thinking": False,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    begin = time.perf_counter()
    first = 0.0
    got = b""
    with server.send(body) as connection:
        while piece := connection.recv(65536):
            got += piece
            if not first and b'"content":"' in got.replace(b'"content":""', b""):
                first = time.perf_counter() - begin
    total = time.perf_counter() - begin
    said = re.search(rb'"completion_tokens":(\d+)', got)
    if said is None or b"data: [DONE]" not in got or int(said[1]) != tokens:
        raise RuntimeError(f"the answer is not whole: {got[-300:]!r}")
    return Timed(first, total, tokens)
