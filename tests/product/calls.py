"""Declared tools and a run of the parser, for the tests of tool calls.

This file owns what every such test checks of deltas: who names a call, and that they add up.
"""

from __future__ import annotations

import json

from hypothesis import strategies as st
from lily.toolcalls import CallParser, declared

ANY = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "path": {"type": "string", "description": "where"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "replace_all": {"type": "boolean"},
        "nothing": {"type": "null"},
        "items": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object"},
        "maybe": {"type": ["string", "null"]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "level": {"enum": ["low", "5", "true"]},
        "place": {"$ref": "#/$defs/place"},
        "free": {},
    },
    "$defs": {"place": {"oneOf": [{"type": "object"}, {"$ref": "#/$defs/name"}]},
              "name": {"type": "string"}},
}  # fmt: skip
TOOLS = declared(
    [
        {"type": "function", "function": {"name": "edit", "parameters": ANY}},
        {"type": "function", "function": {"name": "now"}},
        {"name": "get-weather.v2", "parameters": {"type": "object"}},
    ]
)


def run(pieces, *, ended=True, tools=TOOLS):
    """Text, calls as (name, arguments, complete), and what was cut off."""
    parser = CallParser(tools)
    text, names, ids = "", {}, {}
    arguments: dict[int, str] = {}
    for events in [*map(parser.push, pieces), parser.finish(ended=ended)]:
        for event in events:
            if isinstance(event, str):
                assert event
                text += event
                continue
            if event.index not in names:
                assert event.id, "the first delta names the call"
                assert event.name is not None
                names[event.index], ids[event.index] = event.name, event.id
            else:
                assert event.id is None
                assert event.name is None
            arguments[event.index] = arguments.get(event.index, "") + event.arguments
    assert list(names) == list(range(len(names)))
    assert len(set(ids.values())) == len(ids)
    calls = parser.calls
    assert [call.id for call in calls] == list(ids.values())
    assert [(call.name, call.arguments) for call in calls] == [
        (names[index], arguments[index]) for index in names
    ]
    for call in calls:
        if call.complete:
            assert isinstance(json.loads(call.arguments), dict)
    return text, [(call.name, call.arguments, call.complete) for call in calls], parser.cut


def args(text, **options):
    """The arguments of the only call of a text without any other."""
    rest, calls, cut = run([text], **options)
    assert (rest, cut, len(calls)) == ("", "", 1)
    assert run(list(text), **options) == (rest, calls, cut)
    assert calls[0][2]
    return json.loads(calls[0][1])


def call(name="edit", **arguments):
    inside = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def cuts(data, text):
    """``text`` in pieces."""
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=12).map(sorted))
    ends = [*places, len(text)]
    return [text[a:b] for a, b in zip([0, *places], ends, strict=True)]
