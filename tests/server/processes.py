"""``lily serve`` as a process of its own.

This file owns starting it, finding its port in its log, and ending it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .http import Peer

_START_S = 60


class ServerProcess(Peer):
    """A server on a free port; use it in ``with``. ``log`` is what it wrote so far."""

    def __init__(
        self, *options: str, ready: bool = True, env: dict[str, str] | None = None
    ) -> None:
        self._log = tempfile.NamedTemporaryFile(prefix="lily-serve-", suffix=".log")  # noqa: SIM115
        command = [sys.executable, "-m", "lily", "serve", "--port", "0", *options]
        self.process = subprocess.Popen(
            command, stdout=self._log, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}
        )
        self.port = int(self.wait_for_log(r"listening on http://\S+:(\d+)")[1])
        if ready:
            self.wait_for_log("model ready")

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text("utf-8", "replace")

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        """The first match in the log, as soon as there is one."""
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            found = re.search(pattern, self.log)
            if found:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in the server's log:\n{self.log}")

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        return self.process.wait(timeout=_START_S)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()


def wait_until(condition: Any, what: str) -> None:
    """Wait for something that must become true, however long a busy machine takes."""
    until = time.monotonic() + _START_S
    while not condition():
        assert time.monotonic() < until, f"still not: {what}"
        time.sleep(0.01)
