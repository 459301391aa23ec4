"""Whole chats: messages, tool calls, values split over messages, and what is no text."""

from __future__ import annotations

import json

import pytest
from lily.errors import InvalidInput
from lily.gate import Gate, Outcome

from .scripted import Scripted, chat, gate


def test_a_chat_with_tool_calls():
    made = gate()
    arguments = {"to": "ann@example.org", "cc": ["bob@example.org"], "n": 4111111111111111, "k": 7}
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "send", "arguments": json.dumps(arguments)},
    }
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "mail ann@example.org"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sent to bob@example.org"},
    ]
    answer = made.inspect_messages(messages)
    assert answer.verdict.outcome is Outcome.MASK
    sent = json.dumps(answer.messages)
    assert "@example.org" not in sent
    assert "4111111111111111" not in sent
    inner = answer.messages[1]["tool_calls"][0]
    assert inner["id"] == "call_1"
    masked = inner["function"]["arguments"]
    assert json.loads(masked)["k"] == 7
    restored = json.loads(made.unmask_arguments(masked))
    assert restored == {**arguments, "n": "4111111111111111"}
    assert "messages[1].tool_calls[0].function.arguments.to" in answer.places
    assert messages[0]["content"][0]["text"] == "mail ann@example.org", "the input is untouched"


def test_what_is_allowed_is_unchanged_to_the_byte():
    call = {"type": "function", "function": {"name": "f", "arguments": '{"b":1.50,  "a":[]}'}}
    messages = [*chat("hi"), {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert gate().inspect_messages(messages).messages == messages


def test_keys_and_anthropics_tool_input():
    block = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"ann@example.org": True}}
    answer = gate().inspect_messages([{"role": "assistant", "content": [block]}])
    assert answer.verdict.outcome is Outcome.MASK
    (key,) = answer.messages[0]["content"][0]["input"]
    assert key.startswith("[EMAIL_1_")


def test_detectors_see_the_names_of_arguments():
    made = Scripted()
    call = {"type": "function", "function": {"name": "f", "arguments": '{"ssn": 536904399}'}}
    Gate(detectors=made).inspect_messages([{"role": "assistant", "tool_calls": [call]}])
    assert "ssn: 536904399" in made.seen[0]


@pytest.mark.parametrize("pieces", [("4111 1111 11", "11 1111"), tuple("4111111111111111")])
def test_a_value_split_over_messages(pieces):
    messages = []
    for piece in pieces:
        messages += [*chat(piece), *chat("ok, go on", role="assistant")]
    answer = gate().inspect_messages(messages)
    assert answer.verdict.outcome is Outcome.MASK
    for message in answer.messages[::2]:
        assert message["content"].startswith("[PAYMENT_CARD_")


def test_a_value_split_between_words():
    messages = chat("it begins 4111 1111 11", "fine", "and ends in 11 1111, thanks")
    answer = gate().inspect_messages(messages)
    first, _, last = [message["content"] for message in answer.messages]
    assert first.startswith("it begins [PAYMENT_CARD_")
    assert last.startswith("and ends in [PAYMENT_CARD_")
    assert gate().inspect_messages(chat("4111", "is 12 or 5", "1111")).verdict.may_leave


def test_neighbours_are_not_glued_to_a_value():
    answer = gate().inspect_messages(chat("hello", "ann@example.org", "bye"))
    assert [message["content"] for message in answer.messages[::2]] == ["hello", "bye"]


def test_an_image_stays_here():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    answer = gate().inspect_messages([{"role": "user", "content": [picture]}])
    assert answer.verdict.outcome is Outcome.LOCAL
    assert answer.verdict.rules == ("content.unread",)


@pytest.mark.parametrize("messages", ["text", [1], [{1: "x"}], [{"content": object()}], None])
def test_what_is_no_chat(messages):
    with pytest.raises(InvalidInput):
        gate().inspect_messages(messages)


def test_deep_nesting_is_an_error_and_no_crash():
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="nested deeper"):
        gate().inspect_messages([{"role": "user", "content": deep}])
