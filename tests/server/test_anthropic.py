"""Anthropic's Messages API through Anthropic's own client, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from .http import Reply, read_until
from .processes import ServerProcess, wait_until
from .scripted import ScriptedEngine

SUM = [{"role": "user", "content": "What is 7 + 5?"}]
FOX = [{"role": "user", "content": "Tell me a short story about a fox."}]
PARIS = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER = {
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
THINK: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
NO_THINK: dict[str, Any] = {"thinking": {"type": "disabled"}}


@pytest.fixture(scope="module")
def claude(server: ServerProcess) -> Iterator[anthropic.Anthropic]:
    """Anthropic's own client; nothing but the base URL is particular."""
    with anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0) as made:
        yield made


def ask(claude: anthropic.Anthropic, messages: Any, **fields: Any) -> Any:
    """A whole answer, greedy unless told otherwise."""
    return claude.messages.create(**body(messages, **fields))


def body(messages: Any, **fields: Any) -> dict[str, Any]:
    """Arguments of the client; its newest versions have no ``temperature`` of their own."""
    extra = {"temperature": 0, **fields.pop("extra_body", {})}
    base = {"model": "lily-tiny", "max_tokens": 300, "messages": messages, "extra_body": extra}
    return {**base, **fields}


def plain(messages: Any = SUM, **fields: Any) -> dict[str, Any]:
    """A body for a request without the client."""
    base = {"model": "lily-tiny", "max_tokens": 300, "temperature": 0, "messages": messages}
    return {**base, **fields}


def refused(reply: Reply, status: int, kind: str) -> str:
    """The message of an error, which must be of Anthropic's shape and nothing else."""
    assert reply.status == status, reply.body
    assert set(reply.json) == {"type", "error"}
    assert reply.json["type"] == "error"
    assert reply.json["error"]["type"] == kind
    assert set(reply.json["error"]) == {"type", "message"}
    message: str = reply.json["error"]["message"]
    return message


CASES: dict[str, Any] = {
    "thinking": (FOX, THINK),
    "not thinking": (FOX, {**NO_THINK, "max_tokens": 60}),
    "to the end": (SUM, {}),
    "cut thinking": (FOX, {**THINK, "max_tokens": 5}),
    "stop": (SUM, {"stop_sequences": ["+ 5", "never"]}),
    "tool": (PARIS, {**THINK, "tools": [WEATHER]}),
    "must": (SUM, {"tools": [WEATHER], "tool_choice": {"type": "any"}, "max_tokens": 80}),
    "named": (SUM, {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "get_weather"}}),
    "cut tool": (PARIS, {"tools": [WEATHER], "tool_choice": {"type": "any"}, "max_tokens": 14}),
    "no tool": (PARIS, {"tools": [WEATHER], "tool_choice": {"type": "none"}, "max_tokens": 50}),
}


@pytest.mark.parametrize("case", CASES)
def test_streamed_and_whole_answers_are_the_same(claude, case):
    messages, fields = CASES[case]
    whole = ask(claude, messages, **fields)
    with claude.messages.stream(**body(messages, **fields)) as stream:
        streamed = stream.get_final_message()
    assert [block.type for block in streamed.content] == [block.type for block in whole.content]
    for ours, other in zip(whole.content, streamed.content, strict=True):
        names = {"text": ["text"], "thinking": ["thinking", "signature"]}
        for name in names.get(ours.type, ["name", "input"]):
            assert getattr(ours, name) == getattr(other, name)
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.stop_sequence == whole.stop_sequence
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    total = [m.usage.input_tokens + m.usage.cache_read_input_tokens for m in (whole, streamed)]
    assert total[0] == total[1]


@pytest.mark.parametrize(
    ("case", "reason", "kinds"),
    [
        ("to the end", "end_turn", ["text"]),
        ("thinking", "end_turn", ["thinking", "text"]),
        ("cut thinking", "max_tokens", ["thinking"]),
        ("stop", "stop_sequence", ["text"]),
        ("tool", "tool_use", ["thinking", "tool_use"]),
        ("named", "tool_use", ["tool_use"]),
        ("cut tool", "max_tokens", ["tool_use"]),
        ("no tool", None, ["text"]),
    ],
)
def test_reasons_and_blocks(claude, case, reason, kinds):
    messages, fields = CASES[case]
    answer = ask(claude, messages, **fields)
    assert reason in (None, answer.stop_reason)
    assert [block.type for block in answer.content] == kinds
    assert (answer.stop_sequence == "+ 5") == (case == "stop")
    assert answer.model == "lily-tiny"
    assert answer.role == "assistant"
    for block in answer.content:
        if block.type == "thinking":
            assert block.signature
            assert answer.usage.output_tokens_details.thinking_tokens > 0


def test_the_answer_is_the_engines(claude, engine):
    done = engine.generate(SUM, temperature=0, enable_thinking=False)
    answer = ask(claude, SUM)
    assert answer.content[0].text == done.text == "7 + 5 = 12"
    assert answer.usage.output_tokens == done.usage.completion_tokens


def test_events_come_in_the_right_order(server):
    fields = {"tools": [WEATHER], "stream": True, **THINK}
    reply = server.post("/v1/messages?beta=true", plain(PARIS, **fields))
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(b.partition(b"data: ")[2]) for b in reply.body.split(b"\n\n") if b]
    names = [b.partition(b"\n")[0].decode() for b in reply.body.split(b"\n\n") if b]
    assert names == [f"event: {event['type']}" for event in events]
    order = [event["type"] for event in events if event["type"] != "ping"]
    assert order[0] == "message_start"
    assert order[-2:] == ["message_delta", "message_stop"]
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["usage"]["input_tokens"] > 100  # known before anything is said
    index = -1
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            index += 1
            if event["content_block"]["type"] == "tool_use":
                assert event["content_block"]["input"] == {}
        assert event["index"] == index
    deltas = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert deltas.count("signature_delta") == 1
    assert deltas.index("signature_delta") < deltas.index("input_json_delta")


def test_a_tool_to_and_fro(claude):
    history: list[Any] = list(PARIS)
    call = ask(claude, history, tools=[WEATHER], **THINK)
    used = call.content[-1]
    assert used.input == {"city": "Paris"}
    result = {"type": "tool_result", "tool_use_id": used.id}
    history.append({"role": "assistant", "content": call.content})
    history.append({"role": "user", "content": [{**result, "content": "18 degrees, sunny"}]})
    answer = ask(claude, history, tools=[WEATHER], **THINK)
    assert answer.stop_reason == "end_turn"
    assert "18" in answer.content[-1].text or "sun" in answer.content[-1].text
    # What was computed for the first turn, its answer too, is not computed again.
    computed = call.usage.input_tokens + call.usage.cache_read_input_tokens
    assert answer.usage.cache_read_input_tokens >= computed + call.usage.output_tokens - 2


def rendered(server: ServerProcess, messages: Any, **fields: Any) -> int:
    """How many tokens a prompt has."""
    reply = server.post("/v1/messages/count_tokens", {"messages": messages, **fields})
    assert reply.status == 200, reply.body
    count: int = reply.json["input_tokens"]
    return count


def test_contents_of_messages(server):
    """Strings and blocks are the same; results, errors and notes go where the template has them."""

    def same(one: Any, other: Any, **fields: Any) -> bool:
        return rendered(server, one, **fields) == rendered(server, other, **fields)

    text = {"type": "text", "text": "What is 7 + 5?", "cache_control": {"type": "ephemeral"}}
    assert same(SUM, [{"role": "user", "content": [text]}])
    call = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Rome"}}
    asked = [*PARIS, {"role": "assistant", "content": [call]}]
    result = {"type": "tool_result", "tool_use_id": "t1"}

    def given(**fields: Any) -> list[Any]:
        return [*asked, {"role": "user", "content": [{**result, **fields}]}]

    words = [{"type": "text", "text": "hot"}]
    assert same(given(content="hot"), given(content=words), tools=[WEATHER])
    assert not same(given(content="hot"), given(content="hot", is_error=True), tools=[WEATHER])
    assert rendered(server, given(), tools=[WEATHER]) > rendered(server, PARIS, tools=[WEATHER])
    hidden = {"type": "redacted_thinking", "data": "x"}
    said = {"type": "text", "text": "12"}
    more = {"role": "user", "content": "And 3 + 4?"}
    plainly = [*SUM, {"role": "assistant", "content": "12"}, more]
    assert same(plainly, [*SUM, {"role": "assistant", "content": [hidden, said]}, more])
    system = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    joined = rendered(server, SUM, system="Be brief.\n\nBe kind.")
    assert rendered(server, SUM, system=system) == joined
    first = [{"role": "system", "content": "Be brief.\n\nBe kind."}, *SUM]
    assert rendered(server, first) == joined


BILLING = "x-anthropic-billing-header: cc_version=2.1.{0}; cc_entrypoint=cli; cch={0};"


@pytest.mark.parametrize("shape", ["block", "string", "same block"])
def test_a_changing_billing_header_does_not_spoil_the_prefix_cache(claude, shape):
    rules = f"You are a careful assistant. ({shape}) " + "Answer with one short sentence. " * 20
    counts = []
    for turn in range(2):
        line = BILLING.format(f"a{turn}b{turn * 7}")
        system: Any = f"{line}\n{rules}"
        if shape != "string":
            texts = [line, rules] if shape == "block" else [system]
            system = [{"type": "text", "text": text} for text in texts]
        answer = ask(claude, SUM, system=system, max_tokens=4)
        counts.append(answer.usage)
    assert counts[0].cache_read_input_tokens == 0
    assert counts[1].cache_read_input_tokens > 100
    assert counts[1].cache_read_input_tokens + counts[1].input_tokens == counts[0].input_tokens


def test_a_system_message_amid_the_chat_does_not_spoil_the_prefix_cache(claude):
    history: list[Any] = [{"role": "user", "content": "What is 3 + 4? " * 30}]
    first = ask(claude, history, max_tokens=8)
    history.append({"role": "assistant", "content": first.content})
    history.append({"role": "system", "content": "It is late."})
    history.append({"role": "user", "content": "And 2 + 2?"})
    second = ask(claude, history, max_tokens=8)
    assert second.usage.cache_read_input_tokens >= first.usage.input_tokens - 20


def test_counting(claude):
    fields: dict[str, Any] = {"system": "Be brief.", "tools": [WEATHER]}
    counted = claude.messages.count_tokens(model="lily-tiny", messages=PARIS, **fields)
    usage = ask(claude, PARIS, max_tokens=1, **fields).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    less = claude.messages.count_tokens(model="lily-tiny", messages=PARIS)
    assert less.input_tokens < counted.input_tokens


def test_a_schema(claude):
    schema = {
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    wanted: Any = {"format": {"type": "json_schema", "schema": schema}}
    answer = ask(claude, SUM, output_config=wanted)
    assert isinstance(json.loads(answer.content[0].text)["sum"], int)


def test_what_is_harmless_and_what_is_warned_of(server):
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219,x-1"}
    harmless = {"metadata": {"user_id": "me"}, "service_tier": "auto", "context_management": {}}
    reply = server.post("/v1/messages", plain(**harmless), headers=headers)
    assert reply.status == 200
    assert "x-lily-warning" not in reply.headers
    fields = {**THINK, "frobnicate": 1, "model": "claude-opus", "max_tokens": 10**6}
    warning = server.post("/v1/messages", plain(**fields)).headers["x-lily-warning"]
    for part in ("frobnicate", "'claude-opus' is not here", "budget_tokens", "is clamped"):
        assert part in warning


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        (
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            "messages[0].content[0]: this model",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}
                        ],
                    }
                ]
            },
            "messages[0].content[0].content[0]: this model reads text only",
        ),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*SUM, {"role": "assistant", "content": "7"}]}, "cannot be continued"),
        (
            {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": ""}]}]},
            "belongs to the assistant",
        ),
        ({"tools": [SEARCH]}, "tools[0]: tools of type 'web_search_20250305' are not here"),
        ({"tools": [{"name": "x"}]}, "tools[0]: a tool needs an input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice needs tools"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice names"),
        ({"temperature": 3}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type"),
    ],
)
def test_refusals_name_the_field(server, fields, where):
    asked = {key: value for key, value in plain(**fields).items() if value is not None}
    message = refused(server.post("/v1/messages", asked), 400, "invalid_request_error")
    assert where in message


def test_errors_have_anthropics_shape(server, claude):
    reply = server.post("/v1/messages", b"{")
    assert "not JSON" in refused(reply, 400, "invalid_request_error")
    refused(server.get("/v1/messages"), 405, "invalid_request_error")
    long = [{"role": "user", "content": "word " * 40000}]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        ask(claude, long)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"api_key": "sk-lily"}, 200),
        ({"auth_token": "sk-lily"}, 200),
        ({"api_key": "wrong"}, 401),
        ({"auth_token": "wrong"}, 401),
    ],
)
def test_keys(scripted, monkeypatch, options, status):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    server = scripted(lambda call: (call.say("hi"), call.end()), api_keys=("sk-lily",))
    with anthropic.Anthropic(base_url=server.url, max_retries=0, **options) as claude:
        if status == 200:
            assert ask(claude, SUM).content[0].text == "hi"
            return
        with pytest.raises(anthropic.AuthenticationError) as raised:
            ask(claude, SUM)
    assert raised.value.body["error"]["type"] == "authentication_error"


class Counting(ScriptedEngine):
    """Knows how long a prompt is, too."""

    def prompt_tokens(self, prompt: Any, **options: Any) -> list[int]:
        return [1, 2, 3]


def test_pings_while_nothing_comes_and_an_error_amid_the_stream(scripted):
    made = Counting()
    server = scripted(load=lambda: made, keep_alive_s=0.05)
    data = json.dumps(plain(stream=True)).encode()
    connection = server.connect()
    head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    begun = read_until(connection, b"event: ping")
    assert begun.index(b"event: message_start") < begun.index(b"event: ping")
    assert b'"input_tokens":3' in begun
    read_until(connection, b"event: ping")
    made.call().say("seven")
    assert b'"text":"seven"' in read_until(connection, b"seven")
    made.call().fail(RuntimeError("a secret"))
    end = read_until(connection, b"internal error")
    assert b"event: error" in end
    assert b'"type":"api_error"' in end
    assert b"secret" not in end
    connection.close()


def test_a_client_that_goes_away_stops_its_answer(scripted):
    made = Counting()
    server = scripted(load=lambda: made)
    with (
        anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0) as claude,
        claude.messages.stream(**body(SUM)) as stream,
    ):
        made.call().say("a")
        assert next(stream.text_stream) == "a"
    wait_until(made.call().ended.is_set, "stopped")
