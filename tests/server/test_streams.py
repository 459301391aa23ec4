"""Streams, byte by byte."""

from __future__ import annotations

import json
import re

from .http import chat, events_in, read_until


def raw(server, **fields):
    """Head and de-chunked body of a streamed chat."""
    reply = server.post("/v1/chat/completions", chat(stream=True, **fields))
    assert reply.status == 200
    return reply


def test_every_byte_is_accounted_for(server):
    reply = raw(server, text="What is 7 + 5?")
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache, no-transform"
    blocks = reply.body.split(b"\n\n")
    assert blocks.pop() == b""
    assert blocks.pop() == b"data: [DONE]"
    for block in blocks:
        assert re.fullmatch(rb"data: \{[ -~]*\}", block), block
    events = [json.loads(block[6:]) for block in blocks]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    assert "".join(delta["content"] for delta in deltas[1:-1]) == "7 + 5 = 12"
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + ["stop"]
    assert "timings" in events[-1]
    assert all("usage" not in event for event in events)


def test_usage_comes_last_if_asked_for(server):
    reply = raw(server, text="What is 7 + 5?", stream_options={"include_usage": True})
    *chunks, last, done = reply.events
    assert done == "[DONE]"
    assert last["choices"] == []
    whole = server.chat("What is 7 + 5?").json["usage"]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert last["usage"][name] == whole[name]
    assert all(chunk["usage"] is None for chunk in chunks)


def test_no_character_is_ever_broken(server):
    # Forced by grammar, because the model in the package writes no such text by itself.
    text = "🦊 ü 你好 \u2028 \x85 é 👩\u200d👩\u200d👧"
    reply = raw(server, regex=re.escape(text).replace("\\ ", " "))
    said = "".join(event["choices"][0]["delta"].get("content", "") for event in reply.events[:-1])
    assert said == text
    assert reply.body.isascii()
    for event in reply.events[1:-1]:
        assert "\ufffd" not in event["choices"][0]["delta"].get("content", "")


def test_text_arrives_while_it_is_made(server):
    connection = server.send(chat("Tell me a long story.", stream=True, max_tokens=2000))
    first = read_until(connection, b'"content":"')
    assert b"[DONE]" not in first
    connection.close()


def test_a_keep_alive_connection_serves_one_after_another(server):
    connection = server.send(chat("What is 7 + 5?", stream=True))
    for _ in range(2):
        got = read_until(connection, b"0\r\n\r\n")
        assert got.count(b"HTTP/1.1 200 OK") == 1
        assert b"data: [DONE]\n\n" in got
        data = json.dumps(chat("What is 7 + 5?", stream=True)).encode()
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
            % (len(data), data)
        )
    connection.close()


def test_events_in_reads_whole_events_only():
    body = b'data: {"a":1}\n\n: keep-alive\n\ndata: [DONE]\n\n'
    assert list(events_in(body)) == [{"a": 1}, "[DONE]"]
