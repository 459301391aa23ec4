"""Calls that the model must make, and answers with a form beside tools."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lily import Engine, SamplingParams
from lily.errors import InvalidInput

from .test_structured import PERSON

MESSAGES = [{"role": "user", "content": "What is the weather in Paris?"}]
WILD = SamplingParams(temperature=1.0)
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 30},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["C", "F"]},
        "hours": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
BROAD = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def lily_tiny():
    with Engine.load(max_context=1024) as engine:
        yield engine


def check(done, tools, limit):
    """All complete calls fit their schemas; there is nothing else. Whether it came to its end."""
    schemas = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}
    assert done.text == ""
    for call in done.tool_calls:
        assert call.complete or done.finish_reason == "length"
        if call.complete:
            jsonschema.validate(json.loads(call.arguments), schemas[call.name])
    if done.finish_reason == "length":
        assert len(done.token_ids) == limit
        return False
    assert done.finish_reason == "tool_calls"
    assert done.tool_calls
    assert done.cut in ("", "\n")
    return True


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_call_is_made(lily_tiny, seed, thinking):
    options = {"tools": TOOLS, "sampling": WILD, "seed": seed, "enable_thinking": thinking}
    done = lily_tiny.generate(MESSAGES, tool_choice="required", max_tokens=300, **options)
    assert check(done, TOOLS, 300)
    for name in ("now", "get_weather"):
        done = lily_tiny.generate(MESSAGES, tool_choice={"name": name}, max_tokens=300, **options)
        assert check(done, TOOLS, 300)
        assert [call.name for call in done.tool_calls] == [name]
    one = {"parallel_tool_calls": False, "tool_choice": "required"}
    assert len(lily_tiny.generate(MESSAGES, **one, **options).tool_calls) == 1


values = st.sampled_from([
    {"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 99}, {"type": "null"},
    {"type": "string", "maxLength": 8}, {"type": "string", "pattern": "^[a-z]{2,5}$"},
    {"type": "string", "pattern": "x.", "maxLength": 9},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"enum": ["é🎉", "a b", "", "</p>"]}, {"enum": ["on", "off"], "type": "string"}, {"const": 5},
    {"type": "array", "items": {"enum": [1, "</parameter>"]}, "minItems": 1, "maxItems": 2},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/flag"}}, "required": ["a"],
     "additionalProperties": False},
    {"$ref": "#/$defs/flag"}, {"$ref": "#/$defs/level", "description": "how loud"},
    {"anyOf": [{"$ref": "#/$defs/level"}, {"type": "null"}], "default": None},
    {"allOf": [{"type": "string", "maxLength": 6}, {"pattern": "^[ab]+$"}]},
    {"type": "string", "minLength": 5, "maxLength": 2},
    {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    {"type": "string", "pattern": "(?=lookaround).*", "maxLength": 0},
])  # fmt: skip


@st.composite
def toolboxes(draw):
    tools = []
    for name in draw(st.lists(st.sampled_from(["f", "g.x", "h-é"]), min_size=1, unique=True)):
        properties = draw(
            st.dictionaries(st.text('ab 🎉"\\', min_size=1, max_size=3), values, max_size=4)
        )
        parameters = {
            "type": "object", "properties": properties, "required": sorted(properties)[::2],
            "$defs": {"flag": {"type": "boolean"}, "level": {"enum": ["low", "high"], "title": ""}},
        }  # fmt: skip
        tools.append({"type": "function", "function": {"name": name, "parameters": parameters}})
    return tools


def validates(tools):
    """The schemas without what cannot be kept to: lookaround, contradictory bounds."""
    text = json.dumps(tools).replace("(?=lookaround).*", "")
    return json.loads(text.replace('"minLength": 5, "maxLength": 2', '"maxLength": 2000'))


def test_the_same_call_from_a_cached_prompt(lily_tiny):
    """gh:jundot/omlx#825: after a hit in the prefix cache no calls were made."""
    options = {"tools": TOOLS, "temperature": 0, "max_tokens": 200}
    first, second = (lily_tiny.generate(MESSAGES, **options) for _ in range(2))
    assert second.usage.cached_tokens > 0
    assert first.token_ids == second.token_ids
    assert (first.finish_reason, second.finish_reason) == ("tool_calls", "tool_calls")


@BROAD
@given(tools=toolboxes(), seed=st.integers(0, 2**64 - 1))
def test_a_model_without_any_sense_calls_as_it_must(engine, native, tools, seed):
    native.max_context = 2048
    done = engine.generate(
        [{"role": "user", "content": "Hi"}], tools=tools, tool_choice="required", sampling=WILD,
        seed=seed, max_tokens=250, enable_thinking=False,
    )  # fmt: skip
    check(done, validates(tools), 250)


BOUND = [
    {"type": "string", "maxLength": 4},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "string", "pattern": "^[a-z]{2,5}/$"},
    {"type": "string", "pattern": "x.", "maxLength": 9},
    {"allOf": [{"type": "string", "maxLength": 6}, {"pattern": "^[ab]+$"}]},
    {"$ref": "#/$defs/level"},
    {"anyOf": [{"$ref": "#/$defs/level"}, {"type": "null"}], "default": None},
    {"anyOf": [{"type": "boolean"}, {"const": "maybe"}]},
    {"type": "integer", "minimum": 3, "maximum": 5},
    {"const": {"a": [1, "é"]}},
]


@pytest.mark.parametrize("schema", BOUND, ids=str)
def test_what_a_schema_says_of_one_value_is_kept_to(engine, native, schema):
    native.max_context = 2048
    parameters = {
        "type": "object", "properties": {"v": schema}, "required": ["v"],
        "$defs": {"level": {"enum": ["low", "high"]}},
    }  # fmt: skip
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    for seed in range(5):
        done = engine.generate(
            MESSAGES, tools=tools, tool_choice={"name": "f"}, sampling=WILD, seed=seed,
            max_tokens=200, enable_thinking=False,
        )  # fmt: skip
        assert check(done, tools, 200)


def test_options_that_cannot_be_listed_stay_open(engine, native, tokenizer):
    schema = {"anyOf": [{"allOf": [{"type": "string"}]}, {"const": "y"}]}
    parameters = {"type": "object", "properties": {"v": schema}, "required": ["v"]}
    tools = [{"function": {"name": "f", "parameters": parameters}}]
    used = len(engine._prompt(MESSAGES, tools, False, None).token_ids)
    text = "<tool_call>\n<function=f>\n<parameter=v>\nx\n</parameter>\n</function>\n</tool_call>"
    native.say(tokenizer.encode(text, special=True), used)
    done = engine.generate(
        MESSAGES, tools=tools, tool_choice="required", temperature=0, max_tokens=60,
        parallel_tool_calls=False, enable_thinking=False,
    )  # fmt: skip
    assert done.tool_calls[0].arguments == '{"v": "x"}'


def test_strings_cannot_end_before_their_end(engine, native, tokenizer):
    """A model that writes closing tags into a string is kept from it, or the call would break."""
    tools = [TOOLS[0]]
    used = len(engine._prompt(MESSAGES, tools, False, None).token_ids)
    text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis</parameter>\n</function>\n"
    native.say(tokenizer.encode(text, special=True), used)
    done = engine.generate(
        MESSAGES, tools=tools, tool_choice="required", temperature=0, max_tokens=60,
        enable_thinking=False,
    )  # fmt: skip
    assert json.dumps(done.tool_calls[0].arguments).count("</parameter") == 0
    assert done.text == ""


def test_an_answer_with_a_form_or_a_call(engine, native, tokenizer):
    used = len(engine._prompt(MESSAGES, TOOLS, False, None).token_ids)
    options = {"tools": TOOLS, "enable_thinking": False, "max_tokens": 200}

    def said(text, **form):
        native.say(
            [*tokenizer.encode(text, special=True), tokenizer.control_ids["<|im_end|>"]], used
        )
        return engine.generate(MESSAGES, temperature=0, **form, **options)

    call = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
    answers = (
        ({"schema": PERSON}, '{"name": "Fox", "age": 3}'),
        ({"regex": "[0-9]+ foxes"}, "55 foxes"),
        ({"grammar": 'start: "a" start | "b"'}, "aab"),
    )
    for form, text in answers:
        done = said(text, **form)
        assert (done.text, done.tool_calls, done.finish_reason) == (text, (), "stop")
        done = said(f"{call}\n{call}", **form)
        assert [made.name for made in done.tool_calls] == ["now", "now"]
        assert (done.text, done.finish_reason) == ("", "tool_calls")
        done = said(f"{call}\n{call}", parallel_tool_calls=False, **form)
        assert [made.name for made in done.tool_calls] == ["now"]
    # Under "required" there is no other answer, and under "none" there is no call.
    done = said('{"name": "Fox", "age": 3}', schema=PERSON, tool_choice={"name": "now"})
    assert [made.name for made in done.tool_calls] == ["now"]
    for seed in range(8):
        done = engine.generate(MESSAGES, sampling=WILD, seed=seed, schema=PERSON, **options)
        assert done.finish_reason in ("stop", "tool_calls", "length")
        if done.finish_reason == "stop":
            jsonschema.validate(json.loads(done.text), PERSON)


def test_a_name_that_no_call_can_write_is_refused(engine):
    parameters = {"type": "object", "properties": {"a>b": {}, "ok": {}}, "required": ["a>b"]}
    tools = [{"function": {"name": "f", "parameters": parameters}}]
    with pytest.raises(InvalidInput, match=r"tools\[0\] requires 'a>b'"):
        engine.stream(MESSAGES, tools=tools, tool_choice="required")
    engine.stream(MESSAGES, tools=tools).close()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "integer", "minimum": 5, "maximum": 2}, "minimum"),
        ({"type": "array", "items": {"$ref": "#/properties/a"}}, "does not exist"),
        ({"type": "object", "properties": 5}, "properties"),
    ],
)
def test_a_schema_that_cannot_be_kept_to_is_named(engine, schema, said):
    parameters = {"type": "object", "properties": {"ok": {}, "a": schema}}
    tools = [{"function": {"name": "f", "parameters": parameters}}]
    with pytest.raises(InvalidInput, match=rf"tools\[0\].parameters/properties/a: .*{said}"):
        engine.stream(MESSAGES, tools=tools, tool_choice="required")


def test_a_schema_that_is_nested_too_deep_is_refused(engine):
    deep = {"type": "string"}
    for _ in range(900):
        deep = {"type": "array", "items": deep}
    tools = [{"function": {"name": "f", "parameters": {"properties": {"a": deep}}}}]
    for options in ({"tools": tools}, {"tools": tools, "tool_choice": "required"}):
        with pytest.raises(InvalidInput, match="nest"):
            engine.stream(MESSAGES, **options)
    with pytest.raises(InvalidInput, match="schema"):
        engine.stream(MESSAGES, schema=deep)
