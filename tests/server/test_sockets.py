"""Connections that misbehave. The shared server gives up on senders after two seconds."""

from __future__ import annotations

import json
import socket

import pytest

from .http import chat, head, read_all, read_until
from .processes import wait_until


def well(server) -> None:
    """The server still answers, and nothing is left of what was sent before."""
    assert server.chat("What is 7 + 5?").json["choices"][0]["message"]["content"] == "7 + 5 = 12"
    wait_until(lambda: server.metric("lily_running") == 0, "none runs")
    assert server.metric("lily_waiting") == 0


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"P",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    ],
    ids=["nothing", "a letter", "half a head", "half a header"],
)
def test_a_head_that_never_ends_is_dropped(server, start):
    slow = [server.connect() for _ in range(20)]
    for connection in slow:
        connection.sendall(start)
    well(server)
    for connection in slow:
        assert read_all(connection) == b""
        connection.close()


def test_a_head_in_drops_is_dropped_too(server):
    connection = server.connect()
    connection.settimeout(0.2)
    got = None
    for letter in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 10_000:
        try:
            connection.sendall(bytes([letter]))
            got = connection.recv(100)
        except TimeoutError:
            continue
        except OSError:
            got = b""
        break
    assert got == b""
    connection.close()


def test_a_body_that_never_ends_is_refused(server):
    connection = server.connect()
    connection.sendall(head("/v1/chat/completions", 1000) + b'{"messages"')
    got = read_until(connection, b"}}")
    assert got.startswith(b"HTTP/1.1 408 ")
    assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"
    connection.close()
    well(server)


@pytest.mark.parametrize("stream", [True, False])
def test_a_half_closed_connection_counts_as_closed(server, stream):
    body = chat("Tell me a long story.", stream=stream, max_tokens=5000, ignore_eos=True)
    connection = server.send(body)
    connection.shutdown(socket.SHUT_WR)
    read_all(connection)
    connection.close()
    well(server)


def test_half_a_body_and_gone(server):
    for _ in range(10):
        connection = server.connect()
        connection.sendall(head("/v1/chat/completions", 1000) + b'{"messages"')
        connection.close()
    well(server)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"\xff\xfe\xfd\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nConnection: close\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",  # no Host
        b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Big: " + b"a" * 200_000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=lambda garbage: repr(garbage[:30]),
)
def test_what_is_not_http_is_refused(server, garbage):
    connection = server.connect()
    try:
        connection.sendall(garbage)
        got = read_all(connection)
    except OSError:
        got = b""
    if got:  # else it just hung up
        assert got.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 "))
        error = json.JSONDecoder().raw_decode(got.partition(b"\r\n\r\n")[2].decode())[0]["error"]
        assert error["type"] == "invalid_request_error"
    connection.close()
    well(server)


def test_two_requests_in_one_packet(server):
    connection = server.connect()
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    connection.sendall(one + last)
    assert read_all(connection).count(b"HTTP/1.1 200 OK") == 2
    connection.close()


def test_a_long_prompt_is_stopped_when_its_client_leaves(server):
    before = server.metric("lily_completion_tokens_total")
    for stream in (True, False):
        connection = server.send(chat("word " * 7000, stream=stream, ignore_eos=True))
        wait_until(lambda: server.metric("lily_running") == 1, "it runs")
        connection.close()
        wait_until(lambda: server.metric("lily_running") == 0, "it was stopped")
    assert server.metric("lily_completion_tokens_total") - before < 1000
    well(server)
