"""The grammar under which a model writes calls and nothing else, in Lark's notation.

This file owns which texts are calls that ``parser`` reads back with arguments that fit the schema:
parameters in the order of their declaration, the required ones always. Strings may not hold
``</parameter`` or ``</function>`` here, so that no value can end before its end. What a schema says
of a string that has no equal in regular expressions is left aside, as is what it says of several
parameters together. It knows no tokens; whoever has them says how a tag is spelled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lily.errors import InvalidInput
from lily.toolcalls.declared import Tool
from lily.toolcalls.values import allowed_types, parts_of

# Between two places of a JSON value: nothing, a space, or a new line with its indentation. More
# would let a model that cannot make up its mind write spaces until its tokens are used up.
JSON_SPACE = r"(\n {0,40}| )"
_MAX_LENGTH = 1000  # longer bounds make the automaton too large
_LEADS_ON = {"$ref", "anyOf", "oneOf", "allOf"}
_END = r'"\n</parameter>\n"'
_FREE = r"/(?s:.*)/ & ~/(?s:.*)<\/(parameter|function)(?s:.*)/"


def call_grammar(
    tools: Sequence[Tool],
    *,
    tags: tuple[str, str],
    many: bool,
    wrong: Callable[[str], str],
    first: str = "",
) -> str:
    """Rules for one call of one of ``tools``, or for several in a row.

    Args:
        tags: ``<tool_call>`` and ``</tool_call>`` as terminals of the grammar.
        many: whether more calls may follow the first.
        wrong: what is wrong with a grammar; empty if nothing is.
        first: another rule that the answer may be in place of calls.

    Raises InvalidInput that names the parameter whose name no call can write, or whose schema no
    grammar can.
    """
    rules = _Rules(wrong)
    names = [rules.add("call", _function(tool, rules)) for tool in tools]
    one = f"{tags[0]} ({' | '.join(names)}) {tags[1]}"
    calls = 'one_call ("\\n" one_call)*' if many else "one_call"
    start = f"start: {first} | calls" if first else "start: calls"
    return "\n".join([start, f"calls: {calls}", f"one_call: {one}", *rules.lines, ""])


class _Rules:
    """Named rules, as they come up."""

    def __init__(self, wrong: Callable[[str], str]) -> None:
        self.lines: list[str] = []
        self.wrong = wrong

    def add(self, kind: str, body: str, options: str = "") -> str:
        name = f"{kind}_{len(self.lines)}"
        self.lines.append(f"{name}{options}: {body}")
        return name


def _function(tool: Tool, rules: _Rules) -> str:
    properties, required = _properties(tool.parameters, tool.parameters)
    parts = [_quoted(f"\n<function={tool.name}>\n")]
    for key in [*properties, *(key for key in required if key not in properties)]:
        if not 1 <= len(key) <= 256 or set(key) & set("<>\n"):
            if key in required:
                raise InvalidInput(f"{tool.where} requires {key!r}, which no call can write")
            continue
        place = f"{tool.where}.parameters/properties/{key}"
        value = _value(properties.get(key, {}), tool.parameters, rules, place)
        opening = _quoted(f"<parameter={key}>\n")
        name = rules.add("parameter", f"{opening} {value}")
        parts.append(name if key in required else f"{name}?")
    if not properties and not required and _open(tool.parameters):
        key = rules.add("KEY", r"/[^<>\n]{1,64}/")
        value = _value({}, {}, rules, tool.where)
        any_parameter = rules.add("parameter", f'"<parameter=" {key} ">\\n" {value}')
        parts.append(f"{any_parameter}*")
    return " ".join([*parts, _quoted("</function>\n")])


def _open(schema: Mapping[str, Any]) -> bool:
    return bool(schema) and schema.get("additionalProperties") is not False


def _properties(schema: Any, root: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Properties and required names of an object's schema, through ``$ref`` and ``allOf``."""
    found: dict[str, Any] = {}
    required: list[str] = []
    for part in parts_of(schema, root, ("allOf",)):
        properties, listed = part.get("properties"), part.get("required")
        if isinstance(properties, Mapping):
            found = {**properties, **found}
        for name in listed if isinstance(listed, list) else []:
            if isinstance(name, str) and name not in required:
                required.append(name)
    return found, required


def _value(schema: Any, root: Mapping[str, Any], rules: _Rules, place: str) -> str:
    """A rule for the value and its closing tag."""
    types = allowed_types(schema, root)
    spelled = _spelled(schema, root)
    if spelled:
        return f"({' | '.join(map(_quoted, spelled))}) {_END}"
    if "string" not in types:
        body = f"%json {_json_schema(schema, root)}"
        error = rules.wrong(f"start: {body}")
        if error:
            raise InvalidInput(f"{place}: {error}")
        return f"{rules.add('json', body)} {_END}"
    limits: list[str] = []
    if types == {"string"}:
        for part in parts_of(schema, root, ("allOf",)):
            limits += _limits(part, rules.wrong)
    terminal = rules.add("VALUE", " & ".join([*limits, _FREE]))
    return rules.add("value", terminal, f"[suffix={_END}]")


def _spelled(schema: Any, root: Mapping[str, Any]) -> list[str]:
    """The only values there are, as a call writes them; empty if they cannot be listed."""
    texts: list[str] = []
    for part in parts_of(schema, root, ("anyOf", "oneOf")):
        values: Any = [part["const"]] if "const" in part else part.get("enum")
        if not isinstance(values, list):
            values = {"null": [None], "boolean": [True, False]}.get(str(part.get("type")), [])
        if _LEADS_ON & set(part) if values else not _only_leads_on(part):
            return []
        texts += [v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
    return [text for text in dict.fromkeys(texts) if "</" not in text]


def _only_leads_on(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says no more than which others hold."""
    telling = set(schema) - {"title", "description", "default", "examples", "$defs"}
    return len(telling) == 1 and telling <= _LEADS_ON - {"allOf"}


def _limits(schema: Mapping[str, Any], wrong: Callable[[str], str]) -> list[str]:
    limits = []
    low, high = schema.get("minLength", 0), schema.get("maxLength", _MAX_LENGTH)
    if _small(low) and _small(high) and low <= high and {"minLength", "maxLength"} & set(schema):
        limits.append(f"/(?s:.{{{low},{high if 'maxLength' in schema else ''}}})/")
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        whole = _as_whole(pattern)
        if whole is not None and not wrong(f"start: /{_in_slashes(whole)}/"):
            limits.append(f"/{_in_slashes(whole)}/")
    return limits


def _small(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_LENGTH


def _as_whole(pattern: str) -> str | None:
    """A pattern that is searched for, as one that matches the whole; None where that is hard."""
    begins, ends = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    inner = pattern[begins : len(pattern) - ends]
    if (begins or ends) and "|" in inner:
        return None
    anything = "(?s:.*)"
    return f"{'' if begins else anything}(?:{inner}){'' if ends else anything}"


def _in_slashes(pattern: str) -> str:
    escaped = re.sub(r"\\.|/", lambda found: found[0] if len(found[0]) > 1 else "\\/", pattern)
    return escaped.replace("\n", "\\n").replace("\r", "\\r")


def _json_schema(schema: Any, root: Mapping[str, Any]) -> str:
    if not isinstance(schema, Mapping):
        schema = {}
    shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
    options = {"lenient": True, "whitespace_pattern": JSON_SPACE}
    try:
        return json.dumps({**shared, **schema, "x-guidance": options})
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"a tool's schema is not JSON: {error}") from error


def _quoted(text: str) -> str:
    """A terminal that is exactly this text."""
    return json.dumps(text, ensure_ascii=False)
