"""Bad requests: refused in OpenAI's shape, by the name of the field, and nothing is left behind."""

from __future__ import annotations

import pytest

from .http import chat

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f"}}


def schema(inner):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": inner}}


BAD_FIELDS = [
    ({"messages": []}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages[0].role"),
    ({"messages": [USER, {"role": "user", "content": 5}]}, "messages[1].content"),
    ({"messages": [{"role": "user"}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0]"),
    ({"messages": [USER, {"role": "assistant", "tool_calls": [{}]}]}, "messages[1].tool_calls"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "0.5"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_completion_tokens": -5}, "max_completion_tokens"),
    ({"n": 0}, "n"),
    ({"n": 1000}, "n"),
    ({"seed": 2**64}, "seed"),
    ({"seed": "x"}, "seed"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop[1]"),
    ({"stop": 5}, "stop"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logit_bias": {"a": 1}}, "logit_bias.a"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"logit_bias": {"6144": 1}}, "logit_bias"),
    ({"logprobs": 3}, "logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"response_format": schema({"type": "banana"})}, None),
    ({"regex": "("}, None),
    ({"regex": "a", "grammar": 'start: "a"'}, "response_format"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "web_search", "function": {"name": "f"}}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
    ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
    ),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": "auto", "functions": []}, "function_call"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"reasoning_effort": "very"}, "reasoning_effort"),
    ({"enable_thinking": 1}, "enable_thinking"),
    ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
]


@pytest.mark.parametrize(("fields", "param"), BAD_FIELDS, ids=lambda value: str(value)[:50])
def test_a_bad_field_is_named(server, fields, param):
    body = {"max_tokens": 1, **chat(), **fields}
    for stream in {False, True} if "stream" not in fields else {None}:
        extra = {} if stream is None else {"stream": stream}
        reply = server.post("/v1/chat/completions", {**body, **extra})
        assert reply.status == 400, reply.body
        assert reply.headers["content-type"] == "application/json"
        assert reply.error["type"] == "invalid_request_error"
        assert reply.error["message"]
        if param is not None:
            assert reply.error["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{'messages': []}",
        b'{"messages": [}',
        b'{"temperature": NaN}',
        b'{"temperature": Infinity}',
        b'{"a": "\xff\xfe"}',
        b'{"a": "\xc3"}',
        b"\xef\xbb\xbf{}",
        b"\x00",
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"messages":' + b"[" * 100_000,
        b'{"messages":' + b'{"a":' * 100_000,
        b'{"seed": ' + b"9" * 10_000 + b"}",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_malformed_body_is_refused(server, body):
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
        reply = server.post(path, body)
        assert reply.status == 400, reply.body
        assert reply.error["type"] == "invalid_request_error"


def test_null_fields_are_absent_ones(server):
    names = (
        *("temperature", "top_p", "top_k", "min_p", "max_tokens", "n", "seed", "stop", "logprobs"),
        *(
            "top_logprobs",
            "logit_bias",
            "tools",
            "tool_choice",
            "response_format",
            "stream_options",
        ),
        *("user", "metadata", "reasoning_effort", "parallel_tool_calls", "presence_penalty"),
    )
    reply = server.post(
        "/v1/chat/completions",
        {**dict.fromkeys(names), "messages": [USER], "max_completion_tokens": 2.0},
    )
    assert reply.status == 200
    assert "x-lily-warning" not in reply.headers


def test_unknown_paths_and_methods(server):
    for method, path, status, code in (
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("POST", "/v1/chat/completions/", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
    ):
        reply = server.request(method, path)
        if path == "/" and reply.status == 200:
            continue  # the chat page
        assert (reply.status, reply.error["code"]) == (status, code)


def test_a_prompt_over_the_context_is_refused_with_the_numbers(server):
    for stream in (False, True):
        reply = server.chat("word " * 400_000, stream=stream)  # 2 MB
        assert reply.status == 400
        assert reply.error["code"] == "context_length_exceeded"
        assert "400,0" in reply.error["message"]
        assert "8,192" in reply.error["message"]
    assert server.chat(max_tokens=1).status == 200


def test_a_body_over_the_limit_is_refused(server):
    big = b'{"prompt": "' + b"x" * (33 * 2**20) + b'"}'
    # With a length, before a byte is read; so only the head is sent.
    connection = server.connect()
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(big)
    )
    assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    connection.close()
    # In pieces of no announced length, as soon as it is too much.
    connection = server.connect()
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    piece = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
    try:
        for _ in range(33):
            connection.sendall(piece)
    except OSError:
        pass  # it hung up while we were talking
    connection.close()
    assert server.chat(max_tokens=1).status == 200
