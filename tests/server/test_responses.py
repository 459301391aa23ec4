"""OpenAI's Responses API through OpenAI's own client, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import openai
import pydantic
import pytest

from .processes import wait_until

SUM = "What is 7 + 5?"
FOX = "Tell me a short story about a fox."
PARIS = "What is the weather in Paris?"
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
    "strict": False,
}
NO_THINK: dict[str, Any] = {"reasoning": {"effort": "none"}}
PATH = "/v1/responses"


def ask(client: openai.OpenAI, said: Any, **fields: Any) -> Any:
    """A whole answer, greedy unless told otherwise."""
    return client.responses.create(
        **{"model": "lily-tiny", "input": said, "temperature": 0, **fields}
    )


def bare(output: Any) -> list[dict[str, Any]]:
    """Items of an output without what is made anew in every answer."""
    items = [item.model_dump() if hasattr(item, "model_dump") else dict(item) for item in output]
    for item in items:
        item.pop("id")
        item.pop("call_id", None)
        item.pop("parsed_arguments", None)
        for part in item.get("content") or []:
            part.pop("parsed", None)
    return items


CASES: dict[str, Any] = {
    "thinking": (FOX, {}),
    "not thinking": (FOX, {**NO_THINK, "max_output_tokens": 60}),
    "to the end": (SUM, {}),
    "cut thinking": (FOX, {"max_output_tokens": 5}),
    "cut text": (FOX, {**NO_THINK, "max_output_tokens": 5}),
    "tool": (PARIS, {"tools": [WEATHER]}),
    "must": (SUM, {"tools": [WEATHER], "tool_choice": "required", "max_output_tokens": 80}),
    "cut tool": (
        PARIS,
        {**NO_THINK, "tools": [WEATHER], "tool_choice": "required", "max_output_tokens": 14},
    ),
    "no tool": (PARIS, {"tools": [WEATHER], "tool_choice": "none", "max_output_tokens": 60}),
    "json": (FOX, {"text": {"format": {"type": "json_object"}}, "max_output_tokens": 150}),
}


@pytest.mark.parametrize("case", CASES)
def test_streamed_and_whole_answers_are_the_same(client, case):
    said, fields = CASES[case]
    whole = ask(client, said, **fields)
    events = list(ask(client, said, stream=True, **fields))
    last = events[-1].response
    assert events[-1].type == f"response.{whole.status}"
    assert bare(last.output) == bare(whole.output)
    assert last.usage.output_tokens == whole.usage.output_tokens
    assert last.incomplete_details == whole.incomplete_details
    # The items' own events, put together, say the same once more, and so do the deltas.
    items = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.model_dump() for item in items] == [item.model_dump() for item in last.output]
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text == last.output_text
    calls = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    assert calls == "".join(i.arguments for i in last.output if i.type == "function_call")


@pytest.mark.parametrize(
    ("case", "status", "kinds"),
    [
        ("to the end", "completed", ["reasoning", "message"]),
        ("not thinking", None, ["message"]),
        ("cut thinking", "incomplete", ["reasoning"]),
        ("cut text", "incomplete", ["message"]),
        ("tool", "completed", ["reasoning", "function_call"]),
        ("cut tool", "incomplete", ["function_call"]),
    ],
)
def test_status_and_items(client, case, status, kinds):
    said, fields = CASES[case]
    answer = ask(client, said, **fields)
    assert status in (None, answer.status)
    assert [item.type for item in answer.output] == kinds
    if answer.status == "incomplete":
        assert answer.incomplete_details.reason == "max_output_tokens"
        assert answer.output[-1].status == "incomplete"
        assert answer.usage.output_tokens == fields["max_output_tokens"]


def test_the_answer_is_the_engines(client, engine):
    done = engine.generate([{"role": "user", "content": SUM}], temperature=0)
    answer = ask(client, SUM)
    assert answer.output_text == done.text == "7 + 5 = 12"
    assert answer.output[0].content[0].text == done.reasoning
    usage = answer.usage
    assert usage.input_tokens == done.usage.prompt_tokens
    assert usage.output_tokens == done.usage.completion_tokens
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert 0 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens
    again = ask(client, SUM)
    assert again.usage.input_tokens_details.cached_tokens > 0


def test_events_come_in_the_right_order_and_are_numbered(client):
    events = list(ask(client, PARIS, tools=[WEATHER], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    names = [event.type.removeprefix("response.") for event in events]
    short = [name for at, name in enumerate(names) if name != names[at - 1]]
    assert short == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert events[0].response.status == "in_progress"
    added = [event.item for event in events if event.type == "response.output_item.added"]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.id for item in added] == [item.id for item in done]
    assert {item.status for item in added} == {"in_progress"}
    assert added[1].arguments == ""
    assert {event.response.id for event in (events[0], events[1], events[-1])} == {
        events[0].response.id
    }


def test_the_clients_own_helpers(client):
    class Sum(pydantic.BaseModel):
        sum: int

    parsed = client.responses.parse(model="x", input=SUM, text_format=Sum, temperature=0)
    assert isinstance(parsed.output_parsed, Sum)
    with client.responses.stream(model="x", input=SUM, temperature=0, text_format=Sum) as stream:
        for event in stream:
            if event.type == "response.output_text.done":
                assert isinstance(event.parsed, Sum)
        assert stream.get_final_response().output_parsed == parsed.output_parsed


def test_a_tool_to_and_fro(client):
    history: list[Any] = [{"role": "user", "content": PARIS}]
    first = ask(client, history, tools=[WEATHER])
    call = first.output[-1]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    history += first.output  # as the documentation tells to
    result = {"type": "function_call_output", "call_id": call.call_id}
    answer = ask(client, [*history, {**result, "output": "18 degrees, sunny"}], tools=[WEATHER])
    assert answer.status == "completed"
    assert "18" in answer.output_text or "sun" in answer.output_text
    # What was computed for the first turn, its answer too, is not computed again.
    computed = first.usage.input_tokens + first.usage.output_tokens
    assert answer.usage.input_tokens_details.cached_tokens >= computed - 2
    parts = [{"type": "input_text", "text": "18 degrees, sunny"}]
    other = ask(client, [*history, {**result, "output": parts}], tools=[WEATHER])
    assert other.output_text == answer.output_text


def test_contents_of_the_input(server):
    """Strings, messages and parts are the same; instructions come first."""

    def tokens(said: Any, **fields: Any) -> int:
        reply = server.post(PATH, {"input": said, "max_output_tokens": 1, **fields})
        assert reply.status == 200, reply.body
        count: int = reply.json["usage"]["input_tokens"]
        return count

    part = {"type": "input_text", "text": SUM}
    for said in (
        [{"role": "user", "content": SUM}],
        [{"type": "message", "role": "user", "content": [part]}],
    ):
        assert tokens(said) == tokens(SUM)
    developer = {"role": "developer", "content": "Be brief."}
    user = {"role": "user", "content": SUM}
    assert tokens([developer, user]) == tokens(SUM, instructions="Be brief.") > tokens(SUM)
    said = {"type": "output_text", "text": "12", "annotations": []}
    answered = {"type": "message", "id": "m", "role": "assistant", "content": [said]}
    thought = {"type": "reasoning", "id": "r", "summary": []}
    words = [{"type": "reasoning_text", "text": "Seven and five."}]
    assert tokens([user, answered, user]) == tokens([user, thought, answered, user])
    with_thought = [user, {**thought, "content": words}, answered, user]
    assert tokens(with_thought) > tokens([user, answered, user])


def test_what_is_repeated(client):
    answer = ask(
        client,
        SUM,
        metadata={"a": "b"},
        instructions="Be brief.",
        top_p=0.9,
        max_output_tokens=300,
        tools=[WEATHER],
        tool_choice={"type": "function", "name": "get_weather"},
        parallel_tool_calls=False,
        **NO_THINK,
    )
    assert answer.metadata == {"a": "b"}
    assert answer.instructions == "Be brief."
    assert (answer.top_p, answer.temperature) == (0.9, 0)
    assert answer.max_output_tokens == 300
    assert answer.tools[0].name == answer.tool_choice.name == "get_weather"
    assert answer.parallel_tool_calls is False
    assert answer.reasoning.effort == "none"
    assert answer.store is False  # type: ignore[attr-defined]
    assert answer.model == "lily-tiny"
    assert [item.type for item in answer.output] == ["function_call"]


def test_what_is_harmless_and_what_is_warned_of(server):
    harmless = {"prompt_cache_key": "k", "user": "me", "store": False, "previous_response_id": None}
    harmless["include"] = ["reasoning.encrypted_content"]
    fine = server.post(PATH, {"input": SUM, "max_output_tokens": 1, **harmless})
    assert fine.status == 200
    assert "x-lily-warning" not in fine.headers
    odd = {"store": True, "frobnicate": 1, "tools": [{"type": "web_search"}], "truncation": "auto"}
    reply = server.post(PATH, {"input": SUM, "max_output_tokens": 1, "model": "gpt-9", **odd})
    assert reply.status == 200
    for part in ("frobnicate", "web_search", "store is ignored", "truncation", "'gpt-9'"):
        assert part in reply.headers["x-lily-warning"]
    assert reply.json["store"] is False
    assert reply.json["tools"] == []


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,eA=="}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "keeps nothing"),
        ({"conversation": "c"}, "conversation", "keeps nothing"),
        ({"background": True}, "background", "keeps nothing"),
        ({"prompt": {"id": "p"}}, "prompt", "keeps nothing"),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, "input[0].content[0]", "text only"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]", "nothing is stored"),
        ({"input": [{"type": "computer_call"}]}, "input[0]", "'computer_call' are not supported"),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]},
            "input[0].arguments",
            "not JSON",
        ),
        ({"input": []}, "input", "empty"),
        ({"input": None}, "input", ""),
        ({"max_output_tokens": 0}, "max_output_tokens", ""),
        ({"temperature": 3}, "temperature", ""),
        ({"tools": [{"type": "function"}]}, "tools[0]", "needs a name"),
        ({"tool_choice": "required"}, "tool_choice", "needs tools"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "f"}},
            "tool_choice",
            "get_weather",
        ),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format", "needs a schema"),
        ({"reasoning": {"effort": "very"}}, "reasoning.effort", ""),
        ({"input": "word " * 40000}, "input", "context"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_name_the_field(server, fields, param, words, stream):
    reply = server.post(PATH, {"input": SUM, "stream": stream, **fields})
    assert reply.status == 400
    assert reply.error["param"] == param
    assert words in reply.error["message"]


def test_nothing_is_stored(client):
    answer = ask(client, SUM, max_output_tokens=1)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_an_error_amid_the_stream(scripted):
    server = scripted()
    with openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0) as client:
        stream = client.responses.create(model="x", input="refuse me not", stream=True)
        server.engine.call().say("seven")
        server.engine.call().fail(RuntimeError("a secret"))
        last = list(stream)[-1]
    assert last.type == "response.failed"
    assert last.response.status == "failed"
    assert (last.response.error.code, last.response.error.message) == (
        "server_error",
        "internal error",
    )
    assert last.response.output_text == "seven"


def test_a_client_that_goes_away_stops_its_answer(scripted):
    server = scripted()
    with openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0) as client:
        stream = client.responses.create(model="x", input=SUM, stream=True)
        server.engine.call().say("a")
        for event in stream:
            if event.type == "response.output_text.delta":
                break
        stream.close()
        wait_until(server.engine.call().ended.is_set, "stopped")
