"""Tool calls: values under their schemas, and what may be declared."""

from __future__ import annotations

import re

import pytest
from lily.errors import InvalidInput
from lily.toolcalls import chosen, declared
from lily.toolcalls.values import TYPES, allowed_types

from .calls import TOOLS, args, call, run


@pytest.mark.parametrize(
    "value", ["    return x\n", "\n\n x \t\n\n", "", " ", "\n", "\r\n", "a\r\n"]
)
def test_white_space_of_values_is_exact(value):
    """gh:vllm-project/vllm#48846"""
    assert args(call(text=value)) == {"text": value}


def test_types_come_from_the_schema_both_ways():
    """docs of ddalcu/mlx-serve: "False" for a boolean, and a bool for the string "false"."""
    assert args(call(replace_all="False", text="false")) == {"replace_all": False, "text": "false"}
    assert args(call(replace_all="true", path="5")) == {"replace_all": True, "path": "5"}
    assert args(call(nothing="None", text="None")) == {"nothing": None, "text": "None"}
    assert args(call(level="5", text='"quoted"')) == {"level": "5", "text": '"quoted"'}
    assert args(call(maybe="null", limit="null", text="null")) == {
        "maybe": None, "limit": None, "text": "null",
    }  # fmt: skip
    assert args(call(maybe="None", count=" 5 ")) == {"maybe": "None", "count": 5}
    assert args(call(ratio="5", items='["a", "é"]')) == {"ratio": 5, "items": ["a", "é"]}
    assert args(call(place='{"x": 1}')) == {"place": {"x": 1}}
    assert args(call(place="Rome")) == {"place": "Rome"}


def test_a_value_of_the_wrong_type_is_passed_as_a_string():
    assert args(call(count="five", replace_all="yes")) == {"count": "five", "replace_all": "yes"}
    assert args(call(count="5.5", options="[1]")) == {"count": "5.5", "options": "[1]"}
    assert args(call(options='{"a": NaN}', ratio="1e5")) == {"options": '{"a": NaN}', "ratio": 1e5}
    assert args(call(items="[" * 100_000)) == {"items": "[" * 100_000}


def test_numbers_stay_as_they_are_written():
    _, calls, _ = run([call(ratio="1.10", count="12345678901234567890123")])
    assert calls[0][1] == '{"ratio": 1.10, "count": 12345678901234567890123}'


# --- declarations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("x", "list"),
        ([5], r"tools\[0\] is int"),
        ([{"name": "a"}, {"function": {}}], r"tools\[1\] has no function name"),
        ([{"name": "a b"}], "no spaces"),
        ([{"name": "a", "parameters": []}], r"tools\[0\].parameters"),
    ],
)
def test_bad_declarations_are_named(tools, said):
    with pytest.raises(InvalidInput, match=said):
        declared(tools)


def test_choices():
    assert chosen(TOOLS, "auto") == ("auto", [])
    assert chosen(TOOLS, "none") == ("none", [])
    assert chosen(TOOLS, "required") == ("auto", list(TOOLS))
    assert chosen(TOOLS, {"name": "now"}) == ("auto", [TOOLS[1]])
    for tools, choice, said in (
        ((), "required", "no tools"),
        (TOOLS, {"name": "nope"}, "'nope'; declared tools: edit, now"),
        (TOOLS, "maybe", "tool_choice"),
        (TOOLS, None, "tool_choice"),
    ):
        with pytest.raises(InvalidInput, match=re.escape(said)):
            chosen(tools, choice)


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": "number"}, {"number", "integer"}),
        ({"const": 5}, {"number", "integer"}),
        ({"enum": ["a", None]}, {"string", "null"}),
        ({"allOf": [{"type": ["string", "null"]}, {"not": {}}, {"type": "string"}]}, {"string"}),
        ({"type": "string", "nullable": True}, {"string", "null"}),
        ({"$ref": "#/$defs/loop"}, TYPES),
        ({"$ref": "#/$defs/a~1b/0"}, {"boolean"}),
        ({"$ref": "#/nowhere"}, TYPES),
        ({"type": "strin"}, TYPES),
        ({"type": "string", "enum": [5]}, TYPES),
        (True, TYPES),
        (5, TYPES),
    ],
)  # fmt: skip
def test_allowed_types(schema, wanted):
    root = {"$defs": {"loop": {"$ref": "#/$defs/loop"}, "a/b": [{"type": "boolean"}]}}
    assert allowed_types(schema, root) == wanted


def test_schemas_of_properties_are_found_where_they_stand():
    parameters = {
        "allOf": [{"$ref": "#/$defs/base"}, 5],
        "anyOf": "odd",
        "patternProperties": {"^(s+)+_": {"type": "string"}},
        "$defs": {"base": {"properties": {"b": {"type": "boolean"}}, "oneOf": [{"$ref": "#"}]}},
    }
    tools = declared([{"name": "f", "parameters": parameters}])
    assert args(call("f", s_x="5", b="true"), tools=tools) == {"s_x": "5", "b": True}
    parameters = {"additionalProperties": {"type": "integer"}}
    tools = declared([{"name": "f", "parameters": parameters}])
    assert args(call("f", other="7"), tools=tools) == {"other": 7}


def test_schemas_that_take_for_ever_to_read_do_not():
    doubling = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(60)
    } | {"d60": {"type": "string"}}
    root = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "required": ["a"], "$defs": doubling}
    assert allowed_types(root["properties"]["a"], root) == {"string"}
    assert args(call("f", a="5"), tools=declared([{"name": "f", "parameters": root}])) == {"a": "5"}
    deep = {"type": "string"}
    for _ in range(5000):
        deep = {"anyOf": [deep]}
    assert allowed_types(deep, {}) == TYPES
