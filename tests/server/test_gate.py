"""/v1/gate: verdicts over HTTP, and nothing of the text in the server's log."""

from __future__ import annotations

import logging

import pytest
from lily.gate.settings import parse

from tests.gate.scripted import Scripted


@pytest.fixture
def gate(scripted, monkeypatch):
    """Makes a server whose gate has scripted detectors."""

    def made(*, gate_settings="", detectors=None, **options):
        found = detectors or Scripted()
        monkeypatch.setattr("lily.server.app.BuiltIn", lambda country: found)
        return scripted(gate=parse(gate_settings), **options)

    return made


def test_a_text(gate):
    reply = gate().post("/v1/gate", {"text": "mail ann@example.org"})
    assert reply.status == 200
    said = reply.json
    assert (said["object"], said["outcome"], said["destination"]) == (
        "gate.verdict",
        "mask",
        "cloud",
    )
    (placeholder,) = said["mapping"]
    assert said["masked"] == f"mail {placeholder}"
    assert said["mapping"][placeholder] == "ann@example.org"
    (found,) = said["findings"]
    assert (found["start"], found["end"], found["category"]) == (5, 20, "email")
    assert said["reasons"][0].startswith("Mask: ")


def test_a_chat(gate):
    messages = [{"role": "user", "content": "ann@example.org"}, {"role": "user", "content": "hi"}]
    said = gate().post("/v1/gate", {"messages": messages}).json
    assert said["messages"][0]["content"] == next(iter(said["mapping"]))
    assert said["messages"][1] == messages[1]
    assert said["places"] == ["messages[0].content"]


def test_settings_and_context(gate):
    server = gate(gate_settings='destinations.mine = "local"')
    text = "sk-abcdefgh1234"
    assert server.post("/v1/gate", {"text": text, "destination": "mine"}).json["outcome"] == "allow"
    needs = {"text": "ann@example.org", "needs": ["email"], "can_ask": False}
    assert server.post("/v1/gate", needs).json["outcome"] == "local"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "neither given"),
        ({"text": "x", "messages": [{}]}, "both given"),
        ({"text": 3}, "text"),
        ({"messages": []}, "messages"),
        ({"text": "x", "destination": ""}, "destination"),
        ({"text": "x", "needs": ["emial"]}, "needs[0]"),
        ({"text": "x", "can_aks": False}, "can_aks"),
    ],
)
def test_refusals(gate, body, said):
    reply = gate().post("/v1/gate", body)
    assert reply.status == 400
    assert said in reply.error["message"]


def test_a_failing_gate_says_so_and_lets_nothing_out(gate):
    def fail():
        raise MemoryError

    reply = gate(detectors=Scripted(fail=fail)).post("/v1/gate", {"text": "ann@example.org"})
    said = reply.json
    assert (reply.status, said["outcome"], said["masked"]) == (200, "local", "")
    assert said["rules"] == ["detector.failed"]


def test_the_log_never_has_the_text(gate, caplog):
    caplog.set_level(logging.DEBUG)
    server = gate(log_text=True)
    server.post("/v1/gate", {"text": "canary-8 ann@example.org", "destination": "canary-9"})
    server.post("/v1/gate", {"text": "canary-8", "wrong": "canary-9"})
    assert "canary" not in caplog.text


def test_it_asks_for_the_key(gate):
    assert gate(api_keys=("sk-lily",)).post("/v1/gate", {"text": "x"}).status == 401
