"""Runs a measuring process of its own and reads its JSON; a failure shows what the process said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from bench.machine import ROOT

_TIMEOUT_S = 1800
_SHOWN = 2000  # characters of a failed process's output


def read_json(command: list[str]) -> Any:
    """What the command printed last, as JSON."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S, cwd=ROOT
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-_SHOWN:]
        raise RuntimeError(f"'{os.path.basename(command[0])}' exited {done.returncode}: {said}")
    return json.loads(done.stdout)


def worker(engine: str, model: str, *words: str) -> dict[str, Any]:
    """``python -m bench worker`` in a fresh process."""
    command = [sys.executable, "-m", "bench", "worker", engine, os.path.abspath(model), *words]
    found = read_json(command)
    assert isinstance(found, dict)
    return found
