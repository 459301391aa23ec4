"""Conversation: what stays in the history, and that turns extend each other."""

from __future__ import annotations

import pytest
from lily.errors import ContextFull

FIXED = {"temperature": 0}


@pytest.fixture
def answering(engine, native, tokenizer):
    """The toy says "hm" and "yes" to any prompt, by finding out how long the prompt is."""
    end = tokenizer.control_ids["<|im_end|>"]
    ids = [*tokenizer.encode("hm\n</think>\n\nyes", special=True), end]
    stream = engine.stream

    def scripted(prompt, **options):
        used = engine._prompt(prompt, None, None, options.get("template_variables"))
        native.say(ids, len(used.token_ids))
        return stream(prompt, **options)

    engine.stream = scripted
    return engine


def test_history_and_reuse(answering, native):
    chat = answering.chat("Be brief.", **FIXED)
    first = chat.send("a?")
    assert (first.text, first.reasoning) == ("yes", "hm\n")
    second = chat.send("b?")
    # All of the first turn but its end token, which was never computed.
    computed = first.usage.total_tokens - 1
    assert second.usage.cached_tokens == computed
    assert [message["role"] for message in chat.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert chat.messages[2] == {
        "role": "assistant",
        "content": "yes",
        "reasoning_content": "hm\n",
    }
    chat.reset("New.")
    assert chat.messages == [{"role": "system", "content": "New."}]
    chat.reset()
    assert chat.messages == []


def test_broken_off_answer_stays_as_far_as_it_came(answering):
    chat = answering.chat(**FIXED)
    stream = chat.stream("a?")
    said = next(stream)
    stream.close()
    assert chat.messages[1]["reasoning_content"] == said.reasoning != ""
    assert len(answering._pool._idle) == 1


def test_failed_turn_is_taken_back(answering):
    chat = answering.chat(**FIXED)
    with pytest.raises(ContextFull):
        chat.send("long " * 1000)
    assert chat.messages == []
    assert chat.send("short").text == "yes"
