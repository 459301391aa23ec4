"""Failures of other servers, reported in public; each named by its report, each with its input.

The model in the package says little by itself, so where a certain answer is needed a grammar makes
it say just that. Reports about parsing alone are tests of the parser.
"""

from __future__ import annotations

import json
import re

import pytest

from .http import chat, read_until
from .processes import wait_until

EDIT = {
    "type": "function",
    "function": {
        "name": "edit",
        "parameters": {
            "type": "object",
            "properties": {
                "old_string": {"type": "string"},
                "replace_all": {"type": "boolean"},
            },
            "required": ["old_string"],
        },
    },
}
USER = {"role": "user", "content": "Tell me a short story about a fox."}


def said(server, body):
    """Message and reason of a chat, which must be the same whole and streamed."""
    whole = server.post("/v1/chat/completions", body)
    assert whole.status == 200, whole.body
    choice = whole.json["choices"][0]
    text, thought, reason = "", "", None
    for event in server.post("/v1/chat/completions", {**body, "stream": True}).events[:-1]:
        delta = event["choices"][0]["delta"]
        text += delta.get("content") or ""
        thought += delta.get("reasoning_content") or ""
        reason = event["choices"][0]["finish_reason"]
    message = choice["message"]
    assert text == (message["content"] or "")
    assert thought == message.get("reasoning_content", "")
    assert reason == choice["finish_reason"]
    return message, reason


def spelled(text):
    """A regex for this text alone."""
    return re.sub(r"([^\w\s])", r"\\\1", text)


def test_sglang_27337_vllm_48846_tool_values_are_exact_bytes_without_tags(server):
    """The history's call is rendered, and a new one is parsed, with the value's own whitespace."""
    value = "    return x\n"
    arguments = json.dumps({"old_string": value, "replace_all": False})
    call = {"id": "c1", "type": "function", "function": {"name": "edit", "arguments": arguments}}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    reply = server.post(
        "/tokenize", {"messages": messages, "tools": [EDIT], "enable_thinking": False}
    ).json
    text = server.post("/detokenize", {"tokens": reply["tokens"]}).json["content"]
    assert f"<parameter=old_string>\n{value}\n</parameter>" in text
    assert "<parameter=replace_all>\nfalse\n</parameter>" in text


@pytest.mark.parametrize("max_tokens", range(8, 30, 3))
def test_sglang_27337_a_call_cut_short_leaks_no_tag(server, max_tokens):
    body = chat(
        "What is the weather in Paris?", tools=[EDIT], tool_choice="required", max_tokens=max_tokens
    )
    message, _ = said(server, body)
    shown = json.dumps(message)
    for tag in ("tool_call>", "function=", "parameter"):
        assert tag not in shown


def test_mlx_serve_data_that_looks_like_a_call_is_data(server):
    text = '{"name":"George Washington","arguments":{"born":1732}}'
    body = chat("Who?", tools=[EDIT], tool_choice="none", regex=spelled(text))
    message, reason = said(server, body)
    assert (message["content"], reason) == (text, "stop")
    assert "tool_calls" not in message


@pytest.mark.parametrize("thinking", [True, False])
def test_llama_cpp_27733_imp_793_stray_think_tags_discard_and_leak_nothing(server, thinking):
    """A bias makes the model write ``<think>`` again and again, up to where it is cut."""
    [think] = server.post("/tokenize", {"content": "<think>", "special": True}).json["tokens"]
    body = chat(enable_thinking=thinking, logit_bias={str(think): 100}, max_tokens=5)
    message, reason = said(server, body)
    assert reason == "length"
    assert message["content"] == ""
    assert "reasoning_content" not in message
    body = chat("What is 7 + 5?", enable_thinking=True, max_tokens=4)
    message, reason = said(server, body)
    assert (bool(message["reasoning_content"]), message["content"], reason) == (True, "", "length")


def test_imp_793_thinking_is_told_apart_the_same_way_in_both_modes(server):
    for thinking in (True, False):
        for limit in (3, 12, 40, 80):
            body = chat(USER["content"], enable_thinking=thinking, max_tokens=limit)
            message, _ = said(server, body)
            assert "think>" not in (message["content"] or "")
            assert "think>" not in message.get("reasoning_content", "")


def test_lmstudio_1773_maclocal_44_a_schema_holds_behind_the_thinking(server):
    schema = {
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    body = chat("What is 7 + 5?", enable_thinking=True, response_format=wanted)
    message, reason = said(server, body)
    assert reason == "stop"
    assert not message["reasoning_content"].lstrip().startswith("{")
    assert isinstance(json.loads(message["content"])["sum"], int)


def test_litellm_26879_vllm_41114_system_messages_are_merged_in_order(server):
    two = [
        {"role": "system", "content": "First."},
        USER,
        {"role": "developer", "content": [{"type": "text", "text": "Second."}]},
    ]
    one = [{"role": "system", "content": "First.\n\nSecond."}, USER]
    first = server.post("/tokenize", {"messages": two}).json["tokens"]
    assert first == server.post("/tokenize", {"messages": one}).json["tokens"]
    assert server.post("/v1/chat/completions", {"messages": two, "max_tokens": 1}).status == 200


@pytest.mark.parametrize("thinking", [True, False])
def test_qwen_48_131_the_next_turn_begins_with_all_of_this_one(server, thinking):
    fields = {"temperature": 0, "enable_thinking": thinking}
    messages = [{"role": "user", "content": "What is 7 + 5?"}]
    for question in ("And 3 + 4?", "And 10 - 2?", "Thank you!"):
        before = server.post("/v1/chat/completions", {"messages": messages, **fields}).json
        answer = before["choices"][0]["message"]  # sent back as it came, as clients do
        messages += [answer, {"role": "user", "content": question}]
        after = server.post("/v1/chat/completions", {"messages": messages, **fields}).json
        computed = before["usage"]["prompt_tokens"] + before["usage"]["completion_tokens"]
        # All but the end token, which ends the turn before it was computed.
        assert after["usage"]["prompt_tokens_details"]["cached_tokens"] >= computed - 2


def test_omlx_825_greedy_answers_do_not_depend_on_the_cache(server):
    tool = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    body = chat("What is the weather in Oslo?", tools=[tool], enable_thinking=True)
    cold = server.post("/v1/chat/completions", body).json
    warm = server.post("/v1/chat/completions", body).json
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    calls = [reply["choices"][0]["message"].pop("tool_calls") for reply in (cold, warm)]
    functions = [[call["function"] for call in made] for made in calls]
    assert functions[0] == functions[1]
    assert functions[0][0]["name"] == "get_weather"
    assert cold["choices"] == warm["choices"]


def test_mlx_knife_68_stop_strings_are_cut_wherever_the_tokens_fall(server):
    text = "alpha beta gamma delta"
    for stop, left in (
        ("beta gamma", "alpha "),
        (["gamma d", "zzz"], "alpha beta "),
        ("a", ""),
        ("elt", "alpha beta gamma d"),
        ("delta!", text),
    ):
        message, reason = said(server, chat(regex=spelled(text), stop=stop))
        assert (message["content"], reason) == (left, "stop")
        reply = server.chat(regex=spelled(text), stop=stop, stream=True)
        shown = ""
        for event in reply.events[:-1]:
            shown += event["choices"][0]["delta"].get("content", "")
            assert left.startswith(shown)  # not even for a moment


def test_mlx_lm_677_llama_cpp_24496_a_disconnect_stops_the_job_and_not_the_server(server):
    before = server.metric("lily_completion_tokens_total")
    body = chat("Tell me a long story.", stream=True, max_tokens=8000, ignore_eos=True)
    connection = server.send(body)
    read_until(connection, b'"content":"')
    connection.close()
    wait_until(lambda: server.metric("lily_running") == 0, "stopped")
    assert server.metric("lily_completion_tokens_total") - before < 4000
    assert server.chat("What is 7 + 5?").json["choices"][0]["message"]["content"] == "7 + 5 = 12"


def test_mlx_engine_325_an_image_is_a_clean_refusal(server):
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}"}},
    ]
    reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}]})
    assert reply.status == 400
    assert reply.error == {
        "message": "messages[0] has a part of type 'image_url'; this engine reads text only",
        "type": "invalid_request_error",
        "param": "messages[0]",
        "code": None,
    }
