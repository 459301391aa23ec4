"""The gate alone: it opens no socket, starts no program, and needs nothing of Lily's engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# An audit hook cannot be removed, so each of these runs in a process of its own.
WATCHED = """
import sys
seen = []
sys.addaudithook(lambda event, args: seen.append(event) if event.startswith(
    ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "urllib", "http.")
) else None)
import socket
def refuse(*args, **kwargs):
    raise AssertionError("a socket was opened")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
"""
WORK = """
from lily.gate import Gate
gate = Gate({detectors})
for text in ("hello", "mail ann@example.org", "https://user:pw@example.com/?q=bob%40test.org"):
    verdict = gate.inspect(text)
    gate.unmask(verdict.masked)
gate.inspect_messages([{{"role": "user", "content": "call +34 952 12 34 56"}}])
"""
SCRIPTED = "detectors=__import__('tests.gate.scripted', fromlist=['Scripted']).Scripted()"


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("detectors", [SCRIPTED, ""], ids=["scripted", "built-in"])
def test_no_socket_and_no_program(detectors):
    code = WATCHED + WORK.format(detectors=detectors) + "print(verdict.rules, seen)"
    out = run(code)
    assert out.endswith("[]\n"), out
    if not detectors:
        assert "detector.failed" not in out, "the package's own detectors must have run"


def test_the_hook_would_notice():
    code = WATCHED + "import subprocess\nsubprocess.run(['true'])\nprint(seen)"
    assert "subprocess.Popen" in run(code)


def test_it_imports_nothing_of_lily_but_errors_and_the_encoder():
    code = (
        "import sys, lily.gate, lily.gate.receipt, lily.gate.preview\n"
        + WORK.format(detectors="")
        + "print(sorted(name for name in sys.modules if name.startswith('lily.')))"
    )
    modules = run(code).splitlines()[-1]
    names = {name.strip("[]' ").split(".")[1] for name in modules.split(",")}
    assert names <= {"errors", "gate", "_native"}
