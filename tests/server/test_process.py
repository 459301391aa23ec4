"""The process: how it starts, what it says, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from .http import chat, read_all, read_until
from .processes import ServerProcess, wait_until

LONG = chat("Tell me a long story.", stream=True, max_tokens=8000, ignore_eos=True)


def lily(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lily", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_sigterm_lets_a_stream_finish():
    with ServerProcess("--threads", "1", "--grace", "60") as server:
        connection = server.send({**LONG, "max_tokens": 600})
        read_until(connection, b'"content":"')
        server.process.send_signal(signal.SIGTERM)
        got = read_all(connection)
        assert got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert b'"finish_reason":"length"' in got
        assert server.wait() == 0


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_after_the_grace_time_a_stream_ends_with_an_error(sent):
    with ServerProcess("--threads", "1", "--grace", "0") as server:
        connection = server.send(LONG)
        read_until(connection, b'"content":"')
        server.process.send_signal(sent)
        got = read_all(connection)
        assert b'"code":"shutting_down"' in got
        assert b"[DONE]" not in got
        assert got.endswith(b"0\r\n\r\n")  # ended, not torn off
        assert server.wait() == 0
        assert "Traceback" not in server.log


def test_a_second_ctrl_c_leaves_at_once():
    with ServerProcess("--threads", "1", "--grace", "600") as server:
        connection = server.send(LONG)
        read_until(connection, b'"content":"')
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: not listens(server.port), "it stops listening")
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 130
        connection.close()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except OSError:
        return False
    return True


def test_sigterm_when_nothing_runs():
    with ServerProcess("--threads", "1") as server:
        server.process.terminate()
        assert server.wait() == 0


def test_idle_unload_frees_the_memory_and_the_answer_stays_the_same():
    with ServerProcess("--threads", "1", "--idle-unload", "0.2") as server:
        first = server.chat("What is 7 + 5?").json["choices"]
        server.wait_for_log("model unloaded")
        assert server.get("/health").json == {"status": "ok", "model": "unloaded"}
        assert server.chat("What is 7 + 5?").json["choices"] == first


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path):
    done = lily("serve", str(tmp_path), "--port", "0")
    assert done.returncode == 1
    assert "could not be loaded" in done.stderr
    assert "\nlily: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parallel", "0"], "parallel is 0, expected 1 or more"),
        (["--port", "70000"], "port is 70000, expected 0 to 65535"),
        (["--idle-unload", "0"], "idle_unload_s is 0.0, expected more than 0"),
        (["--api-key", ""], "an API key is empty"),
    ],
)
def test_bad_options(arguments, message):
    done = lily("serve", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_taken_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = lily("serve", "--port", str(port))
    assert done.returncode == 1
    assert f"lily: cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_import_lily_needs_no_server_packages():
    code = """
import sys
for name in ("starlette", "uvicorn", "pydantic", "prometheus_client", "anyio"):
    sys.modules[name] = None
import lily, lily.cli, lily.engine
from lily.cli import serve
try:
    serve._run(None, {}, None, None, {})
except lily.InvalidInput as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert "pip install 'lily-engine[server]'" in done.stdout
