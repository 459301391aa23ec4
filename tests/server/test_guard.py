"""Who may ask: keys, hosts, origins; and what the log and the API keep to themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .http import chat
from .processes import ServerProcess

KEY, OTHER = "sk-lily-1", "sk-lily-2"


@pytest.fixture(scope="module")
def locked():
    options = [
        "--threads",
        "1",
        "--api-key",
        KEY,
        "--api-key",
        OTHER,
        "--cors-origin",
        "https://app.example",
    ]
    with ServerProcess(*options, "--allowed-host", "lily.example", "--max-body", "1000") as server:
        yield server


def named(**headers):
    return {"Host": "lily.example", **headers}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"Authorization": f"bearer  {OTHER}"}, 200),
        ({"x-api-key": KEY}, 200),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": f"Bearer {KEY}x"}, 401),
        ({"Authorization": f"Bearer {KEY[:-1]}"}, 401),
        ({"Authorization": f"Basic {KEY}"}, 401),
        ({"Authorization": KEY}, 401),
        ({"x-api-key": "schlüssel"}, 401),
    ],
)
def test_api_key(locked, headers, status):
    for path in ("/v1/models", "/metrics", "/openapi.json", "/nothing"):
        reply = locked.get(path, headers=named(**{k: v.encode() for k, v in headers.items()}))
        assert reply.status == (404 if (status, path) == (200, "/nothing") else status)
        if status == 401:
            assert reply.error["code"] == "invalid_api_key"
            assert reply.headers["www-authenticate"] == "Bearer"
    assert locked.get("/health", headers=named()).status == 200


def test_hosts(locked, server):
    for host, status in (
        ("lily.example", 200),
        ("LILY.example:8000", 200),
        ("evil.example", 403),
        ("lily.example.evil", 403),
        ("127.0.0.1", 403),
    ):
        assert locked.get("/health", headers={"Host": host}).status == status
    # By default a server on the loopback answers to its names only: a page of another site, whose
    # name was made to point here (DNS rebinding), gets nothing.
    for host, status in (
        ("localhost", 200),
        (f"localhost:{server.port}", 200),
        ("[::1]:80", 200),
        ("127.0.0.1:1", 200),
        ("rebound.example", 403),
        ("localhost.evil.example", 403),
        ("", 403),
    ):
        reply = server.get("/v1/models", headers={"Host": host})
        assert reply.status == status, host
        if status == 403:
            assert reply.error["code"] == "forbidden"


def test_origins(locked, server):
    key = {"Authorization": f"Bearer {KEY}"}
    fine = locked.get("/v1/models", headers=named(Origin="https://app.example", **key))
    assert fine.status == 200
    assert fine.headers["access-control-allow-origin"] == "https://app.example"
    other = locked.get("/v1/models", headers=named(Origin="https://evil.example", **key))
    assert other.status == 403
    assert "access-control-allow-origin" not in other.headers
    preflight = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    allowed = locked.request("OPTIONS", "/v1/chat/completions", headers=named(**preflight))
    assert allowed.status == 200
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    refused = locked.get("/v1/models", headers=named(Origin="https://app.example"))
    assert refused.status == 401  # and the page may read why
    assert refused.headers["access-control-allow-origin"] == "https://app.example"
    # Without the option: the server's own pages only; a page elsewhere cannot even make it work.
    own = {"Host": f"localhost:{server.port}", "Origin": f"http://localhost:{server.port}"}
    assert server.get("/v1/models", headers=own).status == 200
    for origin in ("https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"):
        reply = server.post("/v1/chat/completions", chat(), headers={**own, "Origin": origin})
        assert reply.status == 403


def test_sizes(locked):
    headers = named(Authorization=f"Bearer {KEY}")
    reply = locked.post("/tokenize", {"content": "x" * 1000}, headers=headers)
    assert (reply.status, reply.error["code"]) == (413, "request_too_large")
    assert locked.post("/tokenize", {"content": "x" * 900}, headers=headers).status == 200


def test_no_file_can_be_read(server):
    root = Path(__file__).resolve()
    for path in (
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/static/../run.py",
        "/v1/models/../../etc/passwd",
        "/v1/models/%2fetc%2fpasswd",
        f"/{root}",
    ):
        assert server.get(path).status == 404
    # Fields that other servers read files by.
    for fields in (
        {"model": "/etc/passwd"},
        {"chat_template": "{% include '/etc/passwd' %}"},
        {"chat_template_kwargs": {"path": "/etc/passwd"}},
        {"grammar": "%import /etc/passwd"},
    ):
        reply = server.chat(max_tokens=2, **fields)
        assert "root:" not in reply.body.decode()
    for kind in ("image_url", "input_audio", "file"):
        part = {"type": kind, kind: {"url": "file:///etc/passwd"}}
        body = {"messages": [{"role": "user", "content": [part]}]}
        reply = server.post("/v1/chat/completions", body)
        assert (reply.status, reply.error["param"]) == (400, "messages[0]")


def test_the_log_has_no_text_of_users(server):
    word = "Xylophonquark"
    server.chat(word, max_tokens=2)
    server.chat(word, max_tokens=2, stream=True)
    server.chat(max_tokens=2, user=word, model=word, **{word: 1})
    server.chat(temperature=word)
    server.post("/v1/chat/completions", b'{"' + word.encode())
    server.post("/tokenize", {"content": word})
    server.get(f"/{word}?{word}", headers={"Authorization": word})
    server.chat(response_format={"type": "json_schema", "json_schema": {"schema": {"type": word}}})
    assert word not in server.log
    assert "POST /v1/chat/completions 200" in server.log


def test_the_log_has_text_if_asked():
    with ServerProcess("--threads", "1", "--log-text") as server:
        server.chat("Xylophonquark")
        said = server.chat("What is 7 + 5?").json["choices"][0]["message"]["content"]
        server.wait_for_log("Xylophonquark")
        server.wait_for_log(json.dumps(said)[1:-1].replace("+", r"\+"))
