"""Chats through OpenAI's own client, whole and streamed."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pydantic
import pytest

from .http import chat

FOX = [{"role": "user", "content": "Tell me a short story about a fox."}]
SUM = [{"role": "user", "content": "What is 7 + 5?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
PARIS = [{"role": "user", "content": "What is the weather in Paris?"}]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def ask(client: openai.OpenAI, messages: Any, **fields: Any) -> Any:
    """A whole answer, greedy unless told otherwise."""
    base = {"model": "lily-tiny", "messages": messages, "temperature": 0}
    return client.chat.completions.create(**{**base, **fields})


def gathered(client: openai.OpenAI, messages: Any, **fields: Any) -> dict[str, Any]:
    """A streamed answer, put together again as a client does it."""
    found: dict[str, Any] = {
        "content": "",
        "reasoning_content": "",
        "tool_calls": [],
        "logprobs": [],
    }
    found |= {"finish_reason": None, "usage": None, "roles": [], "ids": set()}
    for chunk in ask(client, messages, stream=True, **fields):
        found["ids"].add(chunk.id)
        if not chunk.choices:
            found["usage"] = chunk.usage
            continue
        choice = chunk.choices[0]
        found["roles"] += [choice.delta.role] if choice.delta.role else []
        found["content"] += choice.delta.content or ""
        found["reasoning_content"] += getattr(choice.delta, "reasoning_content", None) or ""
        found["logprobs"] += choice.logprobs.content if choice.logprobs else []
        for call in choice.delta.tool_calls or []:
            if call.index == len(found["tool_calls"]):
                assert call.id
                assert call.type == "function"
                found["tool_calls"].append({"name": call.function.name, "arguments": ""})
            found["tool_calls"][call.index]["arguments"] += call.function.arguments
        if choice.finish_reason:
            assert found["finish_reason"] is None
            found["finish_reason"] = choice.finish_reason
    return found


CASES = {
    "thinking": (FOX, {"max_tokens": 120}),
    "not thinking": (FOX, {"max_tokens": 60, "extra_body": {"enable_thinking": False}}),
    "to the end": (SUM, {}),
    "stop": (SUM, {"stop": ["+ 5", "never"]}),
    "seeded": (FOX, {"max_tokens": 50, "temperature": 1.5, "seed": 7}),
    "penalties": (FOX, {"max_tokens": 50, "presence_penalty": 1, "frequency_penalty": 1.5}),
    "logprobs": (SUM, {"logprobs": True, "top_logprobs": 3}),
    "tool": (PARIS, {"tools": [WEATHER]}),
    "cut tool": (PARIS, {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 25}),
    "no tool": (PARIS, {"tools": [WEATHER], "tool_choice": "none"}),
    "json": (FOX, {"response_format": {"type": "json_object"}, "max_tokens": 150}),
}


@pytest.mark.parametrize("case", CASES)
def test_streamed_and_whole_answers_are_the_same(client, case):
    messages, fields = CASES[case]
    whole = ask(client, messages, **fields)
    streamed = gathered(client, messages, stream_options={"include_usage": True}, **fields)
    choice = whole.choices[0]
    assert streamed["content"] == (choice.message.content or "")
    assert streamed["reasoning_content"] == getattr(choice.message, "reasoning_content", "")
    assert streamed["finish_reason"] == choice.finish_reason
    calls = [
        {"name": c.function.name, "arguments": c.function.arguments}
        for c in choice.message.tool_calls or []
    ]
    assert streamed["tool_calls"] == calls
    assert streamed["logprobs"] == (choice.logprobs.content if choice.logprobs else [])
    assert streamed["usage"].completion_tokens == whole.usage.completion_tokens
    assert streamed["usage"].prompt_tokens == whole.usage.prompt_tokens
    assert streamed["roles"] == ["assistant"]
    assert len(streamed["ids"]) == 1


def test_the_answer_is_the_engines(client, engine):
    done = engine.generate(SUM, temperature=0)
    answer = ask(client, SUM)
    assert answer.choices[0].message.content == done.text == "7 + 5 = 12"
    assert answer.choices[0].message.reasoning_content == done.reasoning
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage
    assert usage.prompt_tokens == done.usage.prompt_tokens
    assert usage.completion_tokens == done.usage.completion_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens
    assert answer.model == "lily-tiny"


def test_the_checkpoints_defaults_hold(client, engine):
    answer = ask(client, FOX, temperature=openai.NOT_GIVEN, seed=3, max_tokens=40)
    assert (
        answer.choices[0].message.reasoning_content
        == engine.generate(FOX, seed=3, max_tokens=40).reasoning
    )


def test_seeds(client):
    def text(**fields):
        answer = ask(client, FOX, temperature=1.5, max_tokens=30, **fields)
        return [choice.message.reasoning_content for choice in answer.choices]

    assert text(seed=1) == text(seed=1)
    assert text(seed=1) != text(seed=2)
    first, second = text(seed=1, n=2)  # the choices of one request have seeds of their own
    assert [first] == text(seed=1)
    assert [second] == text(seed=2)
    assert len(text(seed=-1)) == 1


def test_max_tokens_by_both_names_and_clamped(client, server):
    for name in ("max_tokens", "max_completion_tokens"):
        answer = ask(client, FOX, **{name: 5})
        assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (5, "length")
    reply = server.chat("What is 7 + 5?", max_tokens=1_000_000)
    assert reply.status == 200
    assert reply.headers["x-lily-warning"] == (
        "max_tokens 1000000 is clamped: the context holds 8192 tokens"
    )
    assert reply.json["choices"][0]["finish_reason"] == "stop"


def test_logprobs_belong_to_the_answer(client):
    answer = ask(client, SUM, logprobs=True, top_logprobs=2).choices[0]
    tokens = answer.logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens) == answer.message.content.encode()
    for token in tokens:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 2
        assert token.top_logprobs[0].logprob == token.logprob  # greedy: the best is taken
        assert token.top_logprobs[0].token == token.token


def test_logit_bias(client, server):
    ids = server.post("/tokenize", {"content": "7"}).json["tokens"]
    base = {"extra_body": {"enable_thinking": False}}
    assert "7" in ask(client, SUM, **base).choices[0].message.content
    banned = {str(token_id): -100 for token_id in ids}
    assert "7" not in ask(client, SUM, logit_bias=banned, **base).choices[0].message.content


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, True),
        ({"enable_thinking": True}, True),
        ({"enable_thinking": False}, False),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "high"}, True),
        ({"reasoning_effort": "high", "enable_thinking": False}, False),
    ],
)
def test_thinking_is_chosen_by_any_of_its_names(client, fields, thinks):
    message = ask(client, SUM, extra_body=fields).choices[0].message
    assert ("reasoning_content" in message.model_extra) is thinks
    assert message.content == "7 + 5 = 12"


def test_a_tool_is_called_and_its_result_is_read(client):
    answer = ask(client, PARIS, tools=[WEATHER]).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content is None
    [call] = answer.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_weather",
        {"city": "Paris"},
    )
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"weather": "sunny"}'}
    history = [*PARIS, answer.message.model_dump(exclude_none=True), result]
    said = ask(client, history, tools=[WEATHER]).choices[0]
    assert said.finish_reason == "stop"
    assert "sunny" in said.message.content


def test_tool_choice(client):
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ("required", named):
        answer = ask(client, SUM, tools=[WEATHER], tool_choice=choice).choices[0]
        assert answer.message.tool_calls[0].function.name == "get_weather"
        assert set(json.loads(answer.message.tool_calls[0].function.arguments)) == {"city"}
    answer = ask(client, PARIS, tools=[WEATHER], tool_choice="none").choices[0]
    assert answer.message.tool_calls is None


def test_schema(client):
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    for thinking in (True, False):
        answer = ask(
            client,
            [{"role": "user", "content": "Give me a JSON object with the keys name and age."}],
            response_format=wanted,
            extra_body={"enable_thinking": thinking},
        ).choices[0]
        found = json.loads(answer.message.content)
        assert set(found) == {"name", "age"}
        assert isinstance(found["age"], int)


def test_regex(client):
    answer = ask(client, SUM, extra_body={"regex": "(yes|no), [0-9]{3}"}).choices[0]
    assert answer.message.content[-5:-3] == ", "
    assert answer.message.content[-3:].isdecimal()


def test_unknown_fields_are_told_and_harmless_ones_are_not(server):
    reply = server.chat(max_tokens=1, frobnicate=1, user="me", metadata={"a": "b"}, store=False)
    assert reply.status == 200
    assert reply.headers["x-lily-warning"] == "ignored unknown fields: frobnicate"
    assert "x-lily-warning" not in server.chat(max_tokens=1, model="lily-tiny").headers
    evil = server.chat(max_tokens=1, **{"a\r\nset-cookie: b": 1, "ü": 2})
    assert "set-cookie" not in evil.headers
    assert server.chat(max_tokens=1, **{" ": 1}).headers["x-lily-warning"] == (
        "ignored unknown fields:"
    )
    assert evil.headers["x-lily-warning"] == "ignored unknown fields: a??set-cookie: b, ?"


def test_any_model_name_is_answered_and_told(server):
    reply = server.chat(max_tokens=1, model="gpt-9")
    assert reply.json["model"] == "lily-tiny"
    assert reply.headers["x-lily-warning"] == "model 'gpt-9' is not here; lily-tiny answers"


def test_several_choices(client):
    answer = ask(client, SUM, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.message.content for choice in answer.choices} == {"7 + 5 = 12"}
    one = ask(client, SUM)
    assert answer.usage.completion_tokens == 3 * one.usage.completion_tokens
    assert answer.usage.prompt_tokens == one.usage.prompt_tokens
    texts = {0: "", 1: ""}
    for chunk in ask(client, SUM, n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {0: "7 + 5 = 12", 1: "7 + 5 = 12"}


def test_timings_and_usage(server):
    body = server.post("/v1/chat/completions", chat("What is 2 + 2?")).json
    again = server.post("/v1/chat/completions", chat("What is 2 + 2?")).json
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    timings = again["timings"]
    assert timings["cache_n"] == again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert timings["cache_n"] + timings["prompt_n"] == body["usage"]["prompt_tokens"]
    assert timings["predicted_n"] == body["usage"]["completion_tokens"]
    assert all(value >= 0 for value in timings.values())


class Step(pydantic.BaseModel):
    """What the client's helpers make a schema of; no value of it can be long."""

    unit: Literal["m", "s"]
    exact: bool


class Plan(pydantic.BaseModel):
    """A schema with definitions of its own."""

    step: Step
    done: bool


def test_the_clients_own_helpers(client):
    """``parse`` and ``stream`` check what they get against models, piece by piece."""
    answer = client.chat.completions.parse(
        model="lily-tiny",
        messages=[{"role": "user", "content": "Give me a JSON object."}],
        response_format=Plan,
        temperature=0,
        extra_body={"enable_thinking": False},
    )
    assert isinstance(answer.choices[0].message.parsed, Plan)
    with client.chat.completions.stream(
        model="lily-tiny",
        messages=[{"role": "user", "content": "Call step."}],
        tools=[openai.pydantic_function_tool(Step, name="step")],
        tool_choice="required",
        temperature=0,
    ) as stream:
        kinds = [event.type for event in stream]
        [call] = stream.get_final_completion().choices[0].message.tool_calls
    assert "tool_calls.function.arguments.delta" in kinds
    assert "tool_calls.function.arguments.done" in kinds
    assert isinstance(call.function.parsed_arguments, Step)
