"""Tool calls on the way through the engine: chunks, reasons to end, thinking, stops, history."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lily.completion import ToolCall
from lily.errors import InvalidInput

from .calls import call

MESSAGES = [{"role": "user", "content": "Hi"}]
TOOLS = [
    {"type": "function", "function": {"name": "now"}},
    {
        "type": "function",
        "function": {
            "name": "edit",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
            },
        },
    },
]
EDIT = call(text="a\nb ", count="5")


@pytest.fixture
def answer(engine, native, tokenizer):
    """Runs an answer that the model is made to give; returns chunks and the completion."""

    def run(text, *, end=True, tools=TOOLS, thinking=False, **options):
        shown = None if options.get("tool_choice") == "none" else tools
        used = len(engine._prompt(MESSAGES, shown, thinking, None).token_ids)
        ids = text if isinstance(text, list) else tokenizer.encode(text, special=True)
        options.setdefault("max_tokens", None if end else len(ids))
        native.say([*ids, tokenizer.control_ids["<|im_end|>"]], used)
        options = {"enable_thinking": thinking, "temperature": 0, "tools": tools, **options}
        chunks = list(engine.stream(MESSAGES, **options))
        done = chunks[-1].completion
        assert "".join(chunk.text for chunk in chunks) == done.text
        assert "".join(chunk.reasoning for chunk in chunks) == done.reasoning
        deltas = [delta for chunk in chunks for delta in chunk.tool_calls]
        for index, made in enumerate(done.tool_calls):
            own = [delta for delta in deltas if delta.index == index]
            assert (own[0].id, own[0].name) == (made.id, made.name)
            assert {(delta.id, delta.name) for delta in own[1:]} <= {(None, None)}
            assert "".join(delta.arguments for delta in own) == made.arguments
        assert len({delta.index for delta in deltas}) == len(done.tool_calls)
        return chunks, done

    return run


def made(done):
    return [
        (c.name, json.loads(c.arguments) if c.complete else c.arguments) for c in done.tool_calls
    ]


def test_a_call_streams_and_is_no_text(answer):
    chunks, done = answer(f"Let me see.\n\n{EDIT}\n{call('now')}")
    assert (done.text, done.finish_reason, done.cut) == ("Let me see.", "tool_calls", "")
    assert made(done) == [("edit", {"text": "a\nb ", "count": 5}), ("now", {})]
    assert len([chunk for chunk in chunks if chunk.tool_calls]) > 4  # as it forms
    assert "edit()" in repr(done)
    assert "edit(" in done._repr_html_()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_values_come_through_tokens_as_they_are(answer, tokenizer, value):
    value = tokenizer.decode(tokenizer.encode(value.replace("<", "")))
    _, done = answer(tokenizer.encode(call(text=value), special=False))
    assert made(done) == [("edit", {"text": value})]


def test_tags_spelled_in_plain_tokens_are_a_call_too(answer, tokenizer):
    """Quantised models do not always find the tag's own token."""
    _, done = answer(tokenizer.encode(EDIT, special=False))
    assert made(done) == [("edit", {"text": "a\nb ", "count": 5})]


def test_choice_none_renders_no_tools_and_parses_no_calls(answer):
    _, done = answer(EDIT, tool_choice="none")
    assert (done.text, done.tool_calls, done.finish_reason) == (EDIT, (), "stop")


def test_without_tools_nothing_is_a_call(answer):
    _, done = answer(EDIT, tools=None)
    assert (done.text, done.tool_calls, done.finish_reason) == (EDIT, (), "stop")


def test_undeclared_functions_are_text(answer):
    text = f"So: {call('rm', path='x')}"
    _, done = answer(text)
    assert (done.text, done.tool_calls, done.finish_reason) == (text, (), "stop")


def test_calls_within_thinking_are_no_calls(answer):
    _, done = answer(f"I could {EDIT}\n</think>\n\n{call('now')}", thinking=None)
    assert done.reasoning == f"I could {EDIT}\n"
    assert (done.text, made(done)) == ("", [("now", {})])
    _, done = answer(f"I could {EDIT}", thinking=None)
    assert (done.text, made(done), done.finish_reason) == ("", [], "stop")


def test_one_call_only(answer):
    _, done = answer(f"{EDIT}\n{call('now')} and more", parallel_tool_calls=False)
    assert made(done) == [("edit", {"text": "a\nb ", "count": 5})]
    assert (done.text, done.finish_reason) == ("", "tool_calls")


def test_stop_strings_end_text_and_not_calls(answer):
    _, done = answer(f"one b\n\n{EDIT} two STOP three {call('now')}", stop=["b\n", "a\nb", "STOP"])
    assert (done.text, done.stop, done.finish_reason) == ("one b two ", "STOP", "stop")
    assert [call.name for call in done.tool_calls] == ["edit"]
    _, done = answer(f"ST{call('now')}OP", stop="STOP")
    assert (done.text, done.stop, done.finish_reason) == ("STOP", None, "tool_calls")


def test_an_answer_that_is_too_long_says_so(answer, tokenizer):
    _, done = answer("Hm.\n\n" + EDIT.partition("5")[0], end=False)
    assert (done.text, done.finish_reason) == ("Hm.", "length")
    assert made(done) == [("edit", '{"text": "a\\nb ", "count": ')]
    assert not done.tool_calls[0].complete
    _, done = answer(f"{call('now')}\n<tool_call>\n<function=ed", end=False)
    assert (done.text, done.finish_reason, made(done)) == ("", "length", [("now", {})])
    assert done.cut == "\n<tool_call>\n<function=ed"


def test_a_call_that_the_model_did_not_finish_is_no_reason_to_call(answer):
    _, done = answer("<tool_call>\n<function=edit>\n<parameter=text>\nhalf")
    assert (done.text, done.finish_reason) == ("", "stop")
    assert done.tool_calls == (ToolCall(done.tool_calls[0].id, "edit", '{"text": "half', False),)


def test_an_answer_that_ends_in_a_stray_tag_is_kept(answer):
    """gh:ggml-org/llama.cpp#27733"""
    _, done = answer("The answer is 5.<think>")
    assert (done.text, done.reasoning, done.finish_reason) == ("The answer is 5.", "", "stop")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": [{}]}, "tools"),
        ({"tools": {"name": "f"}}, "tools"),
        ({"tool_choice": "required"}, "no tools"),
        ({"tools": TOOLS, "tool_choice": {"name": "f"}}, "declared tools: now, edit"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
    ],
)
def test_bad_options_are_refused_before_the_first_chunk(engine, options, said):
    with pytest.raises(InvalidInput, match=said):
        engine.stream(MESSAGES, **options)


def test_a_conversation_with_a_tool(engine, native, tokenizer, monkeypatch):
    stream = engine.stream

    def scripted(prompt, *, says, **options):
        used = engine._prompt(
            prompt, options["tools"], options["enable_thinking"], options["template_variables"]
        )
        ids = tokenizer.encode(says, special=True)
        native.say([*ids, tokenizer.control_ids["<|im_end|>"]], len(used.token_ids))
        return stream(prompt, **options)

    monkeypatch.setattr(engine, "stream", scripted)
    chat = engine.chat(tools=TOOLS, enable_thinking=False, temperature=0)
    first = chat.send("Edit.", says=f"Yes.\n\n{EDIT}")
    chat.add_tool_result(first.tool_calls[0], "done")
    chat.add_tool_result("other", "5 o'clock")
    second = chat.send(says="It is done.")
    assert (second.text, second.finish_reason) == ("It is done.", "stop")
    # The model's own words became the very tokens that it wrote.
    assert second.usage.cached_tokens == first.usage.total_tokens - 1
    assert [message["role"] for message in chat.messages] == [
        "user", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip
    assert chat.messages[1] == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_content": "",
        "tool_calls": [
            {
                "id": first.tool_calls[0].id,
                "type": "function",
                "function": {"name": "edit", "arguments": '{"text": "a\\nb ", "count": 5}'},
            }
        ],
    }
    assert chat.messages[2]["tool_call_id"] == first.tool_calls[0].id
    # Half a call is not kept; nobody could render it.
    third = chat.send("Again.", says="<tool_call>\n<function=edit>\n<parameter=text>\nhalf")
    assert not third.tool_calls[0].complete
    assert chat.messages[-1]["role"] == "assistant"
    chat.send("And now?", says="Nothing.")
