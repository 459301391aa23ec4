"""Planners that fail: done here or an error, with every byte that left in the receipt."""

from __future__ import annotations

import json
import logging
import traceback

import pytest
from lily.cancel import CancelToken
from lily.errors import Cancelled, InvalidInput
from lily.hybrid import HybridSettings, PlannerError, Receipt
from lily.hybrid.run import BROKEN_OFF

from .parts import Worker, hybrid, script
from .planner import Fail, Raw, Say, ScriptedPlanner, Use

KEY = "key-that-nobody-may-see"
STRICT = HybridSettings(local_fallback=False)


def event(delta):
    """A server-sent event with one choice."""
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


def check_receipt(receipt, planner):
    """Every request is there as the planner's socket got it, headers too, with the key replaced."""
    assert len(receipt.sent) == len(planner.received)
    for sent, raw in zip(receipt.sent, planner.received, strict=True):
        head, body = raw.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        assert first == "POST /v1/chat/completions HTTP/1.1"
        got = [tuple(line.split(": ", 1)) for line in lines]
        shown = [(name, value.replace(KEY, "(key)")) for name, value in got]
        assert [(name.lower(), value) for name, value in sent.headers] == [
            (name.lower(), value) for name, value in shown
        ]
        assert sent.body.encode() == body
        assert sent.body_bytes == len(body)
    assert receipt.sent_bytes == sum(map(len, planner.bodies))


FAULTS = {
    "no": (Fail(400), "status 400"),
    "no such key": (Fail(401), "status 401"),
    "busy": (Fail(429, "retry-after: 7\r\n"), "status 429"),
    "broken": (Fail(500), "status 500"),
    "redirect": (Fail(302, "location: http://127.0.0.1:1/v1\r\n"), "status 302"),
    "drop": (Fail("drop"), "cannot be reached: RemoteProtocolError"),
    "half": (Fail("half"), "broke off"),
    "hang": (Fail("hang"), "cannot be reached: ReadTimeout"),
    "not json": (Raw(b"data: {not json\n\n"), "no stream of chat completions"),
    "not an object": (Raw(b"data: [1]\n\n"), "no stream of chat completions"),
    "no choice": (Raw(b'data: {"choices": 5}\n\n'), "no stream of chat completions"),
    "deep": (Raw(b"data: " + b"[" * 100_000 + b"\n\n"), "no stream of chat completions"),
    "not utf-8": (Raw(b'data: {"choices": "\xff\xfe"}\n\n'), "no stream of chat completions"),
    "calls are no list": (Raw(event({"tool_calls": 5})), "tool calls are malformed"),
    "calls are words": (Raw(event({"tool_calls": ["x"]})), "tool calls are malformed"),
    "endless line": (Raw(b"data: " + b"x" * (5 << 20)), "passes 4,194,304 bytes"),
    "endless answer": (Raw(event({"content": "x" * 999}) * 5000), "passes 4,194,304 bytes"),
    "nothing": (Raw(b""), "broke off"),
}
AGAIN = {"busy": 3, "broken": 3, "drop": 3, "hang": 3}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault, monkeypatch, caplog):
    """Done here where that is allowed, else PlannerError; retries are the very same bytes."""
    monkeypatch.setenv("LILY_PLANNER_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    reply, said = FAULTS[fault]
    pauses = []
    options = {"timeout_s": 0.3 if fault == "hang" else 20.0, "pauses": pauses}
    with ScriptedPlanner(script(reply)) as planner:
        answer = hybrid(planner.base_url, **options).ask("Sum it up.", texts=["x"])
        assert (answer.text, answer.where) == ("All is well.", "this machine")
        assert said in answer.receipt.steps[-1].result
        check_receipt(answer.receipt, planner)
        assert len(planner.received) == AGAIN.get(fault, 1)
        assert len(set(planner.received)) == 1
        assert pauses == ([7.0, 7.0] if fault == "busy" else [0.5, 1.0])[: AGAIN.get(fault, 1) - 1]
        del planner.received[:]
        receipt = Receipt()
        with pytest.raises(PlannerError) as caught:
            hybrid(planner.base_url, settings=STRICT, **options).ask("Sum it up.", receipt=receipt)
        check_receipt(receipt, planner)
    assert said in str(caught.value)
    assert KEY.encode() in planner.received[0]
    shown = "".join(traceback.format_exception(caught.value))
    for text in (shown, caplog.text, repr(answer), json.dumps(answer.receipt.as_dict())):
        assert KEY not in text


def test_nobody_listens():
    """The connection is refused: nothing can have left, and the attempts are in the receipt."""
    with ScriptedPlanner(script(Say("x"))) as planner:
        pass
    answer = hybrid(planner.base_url).ask("Sum it up.")
    assert answer.where == "this machine"
    assert [each.outcome for each in answer.receipt.sent] == ["ConnectError"] * 3
    assert answer.receipt.sent_bytes == 0
    assert answer.receipt.summary() == "Nothing left this machine."


@pytest.mark.parametrize("key", ["a\nb", "a\x00", "schlüssel"])
def test_a_key_that_no_header_may_hold(key, monkeypatch):
    """Said without showing it, and nothing is sent."""
    monkeypatch.setattr("os.environ", {"LILY_PLANNER_KEY": key})
    with ScriptedPlanner(script(Say("x"))) as planner:
        with pytest.raises(InvalidInput, match="no HTTP header may hold") as caught:
            hybrid(planner.base_url).ask("Sum it up.")
        assert not planner.received
    assert key not in "".join(traceback.format_exception(caught.value))


def test_a_broken_stream_is_told():
    """What was shown already is set apart from the answer that follows."""
    with ScriptedPlanner(script(Fail("half"))) as planner:
        pieces, answer = drained(hybrid(planner.base_url).stream("Sum it up."))
    assert "".join(pieces) == "The answer is" + BROKEN_OFF + "All is well."
    assert answer.text == "All is well."


def drained(stream):
    """(the pieces, what the generator returns)."""
    pieces = []
    while True:
        try:
            pieces.append(next(stream))
        except StopIteration as end:
            return pieces, end.value


ASK = ("ask_worker", {"handles": ["d1"], "request": "how?"})
BAD_CALLS = {
    "no json": ("ask_worker", "{", "malformed"),
    "a list": ("ask_worker", "[1]", "malformed"),
    "deep": ("ask_worker", "[" * 9999, "malformed"),
    "no request": ("ask_worker", {"handles": ["d1"]}, "malformed"),
    "handles no list": ("ask_worker", {"handles": "d1", "request": "x"}, "malformed"),
    "no such handle": (
        "ask_worker",
        {"handles": ["d9", 3, None], "request": "x"},
        "does not exist",
    ),
    "no such tool": ("rm -rf", {}, "no such tool"),
    "no name": ("", {}, "no such tool"),
    "no expression": ("calculate", {}, "malformed"),
    "no arithmetic": ("calculate", {"expression": "open('x')"}, "not arithmetic"),
    "half a pair": ("calculate", '{"expression": "\\ud800"}', "not arithmetic"),
}


@pytest.mark.parametrize("bad", BAD_CALLS)
def test_malformed_calls(bad):
    """The planner is told in constant words, and may go on."""
    name, arguments, said = BAD_CALLS[bad]
    with ScriptedPlanner(script(Use([(name, arguments)]), Say("Done."))) as planner:
        answer = hybrid(planner.base_url).ask("Sum it up.", texts=["x"])
    told = json.loads(planner.bodies[1])["messages"][-1]
    assert told["role"] == "tool"
    assert said in told["content"]
    assert (answer.text, answer.where) == ("Done.", "planner")
    check_receipt(answer.receipt, planner)


def test_half_a_surrogate_pair():
    """It can be neither shown nor sent; the run goes on without it."""
    odd = Raw(
        b'data: {"choices": [{"delta": {"content": "a\\ud800", "tool_calls": '
        b'[{"id": "\\udfff", "function": {"name": "x\\ud800", "arguments": "\\ud800"}}]}}]}\n\n'
        b"data: [DONE]\n\n"
    )
    with ScriptedPlanner(script(odd, Say("b"))) as planner:
        pieces, answer = drained(hybrid(planner.base_url).stream("Sum it up."))
    assert "".join(pieces) == "a?\n\nb"
    assert answer.text == "b"


def test_endless_calls():
    """A planner that never answers: the limit of requests, then this machine."""
    with ScriptedPlanner(script(Use([ASK]))) as planner:
        answer = hybrid(planner.base_url, max_requests=4).ask("Sum it up.", texts=["x"])
    assert len(planner.received) == 4
    assert answer.where == "this machine"
    assert answer.receipt.steps[-1].result == "the limit of 4 requests is reached"


def test_too_many_calls_at_once():
    """Eight are carried out; the others are told so."""
    worker = Worker()
    with ScriptedPlanner(script(Use([ASK] * 20), Say("Done."))) as planner:
        hybrid(planner.base_url, worker).ask("Sum it up.", texts=["x"])
    told = [m["content"] for m in json.loads(planner.bodies[1])["messages"] if m["role"] == "tool"]
    assert len(worker.asked) == 8
    assert told[8:] == ["Too many calls at once."] * 12


def test_bytes_are_limited():
    """The budget counts what leaves, retries too; a request that passes it is not begun."""
    with ScriptedPlanner(script(Use([ASK]))) as planner:
        answer = hybrid(planner.base_url, max_sent_bytes=6000).ask("Sum it up.", texts=["x"])
    assert 0 < answer.receipt.sent_bytes <= 6000
    assert answer.receipt.steps[-1].result == "the limit of 6,000 bytes sent is reached"
    check_receipt(answer.receipt, planner)


def test_cancelled():
    """Neither the planner's answer nor the worker's goes on, and nothing is done here instead."""
    cancel = CancelToken()

    def say(asked):
        cancel.cancel()
        return "late"

    with ScriptedPlanner(script(Use([ASK]))) as planner:
        with pytest.raises(Cancelled):
            hybrid(planner.base_url, Worker(say)).ask("Sum it up.", texts=["x"], cancel=cancel)
        assert len(planner.received) == 1
    with pytest.raises(Cancelled):
        hybrid(planner.base_url).ask("Sum it up.", cancel=cancel, sensitive=True)
