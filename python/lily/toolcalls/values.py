"""What the text of one parameter means, under the JSON schema that was declared for it.

This file owns the types. A call's text has no quotes around strings, so only the schema tells
whether ``5`` is a number or a string:

- Where only strings are allowed, the value is a string of exactly those characters.
- Where no string is allowed, the value is the JSON that stands there, as it is written (and
  ``True``, ``False`` and ``None``, which models write in Python's spelling, are what they mean).
- Where both are, JSON of another allowed type wins (``null``, ``5``), else it is a string.
- A value that fits no allowed type is passed as a string, so that nothing is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

TYPES = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_NOTHING: Mapping[str, Any] = {}
_SPACE = " \t\r\n"
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_JSON_BEGINS = frozenset('{["-0123456789tfnTFN')


def allowed_types(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a schema lets through; all if it says nothing that can be read.

    ``root`` is where ``$ref`` points into.
    """
    try:
        return _types(schema, root, {}) or TYPES
    except RecursionError:
        return TYPES


def _types(
    schema: Any, root: Mapping[str, Any], known: dict[int, frozenset[str]]
) -> frozenset[str]:
    """``known`` is what was read already: each schema is read once, however often it is used."""
    if not isinstance(schema, Mapping):
        return TYPES
    if id(schema) in known:
        return known[id(schema)]
    known[id(schema)] = TYPES  # a schema that leads back to itself says nothing by that
    found = _named_types(schema.get("type"))
    if isinstance(schema.get("enum"), list):
        found &= frozenset().union(*(_types_of(value) for value in schema["enum"]))
    if "const" in schema:
        found &= _types_of(schema["const"])
    if isinstance(schema.get("$ref"), str):
        found &= _types(resolve(schema["$ref"], root), root, known)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            options = [_types(option, root, known) for option in schema[key]]
            found &= frozenset().union(*options)
    if isinstance(schema.get("allOf"), list):
        for part in schema["allOf"]:
            found &= _types(part, root, known)
    if schema.get("nullable") is True:
        found |= {"null"}
    known[id(schema)] = found
    return found


def _named_types(names: Any) -> frozenset[str]:
    listed = frozenset([names] if isinstance(names, str) else names if _strings(names) else ())
    known = listed & TYPES
    if "number" in known:
        known |= {"integer"}
    return known or TYPES


def _strings(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _types_of(value: Any) -> frozenset[str]:
    """Every type that a JSON value has; an integer is a number too."""
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        return frozenset({"integer", "number"} if value.is_integer() else {"number"})
    if isinstance(value, str):
        return frozenset({"string"})
    if value is None:
        return frozenset({"null"})
    return frozenset({"object"} if isinstance(value, Mapping) else {"array"})


def resolve(pointer: str, root: Mapping[str, Any]) -> Any:
    """What a local ``$ref`` points at; an empty schema if there is nothing."""
    place: Any = root
    for part in pointer.lstrip("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping):
            place = place.get(key)
        elif isinstance(place, list) and key.isdigit() and int(key) < len(place):
            place = place[int(key)]
        else:
            return _NOTHING
    return _NOTHING if place is None else place


def parts_of(
    schema: Any, root: Mapping[str, Any], lists: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    """A schema, and those that it is made of through ``$ref`` and the keywords ``lists``, once."""
    queue, seen = [schema], set()
    for part in queue:
        if isinstance(part, Mapping) and id(part) not in seen:
            seen.add(id(part))
            yield part
            for name in lists:
                if isinstance(part.get(name), list):
                    queue.extend(part[name])
            if isinstance(part.get("$ref"), str):
                queue.append(resolve(part["$ref"], root))


def schema_of(key: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The schema of one property, wherever in an object's schema it stands; None if nowhere.

    Patterns for names are not matched, since a caller could give one that takes for ever: a name
    that is not listed may have any of their schemas.
    """
    others: list[Any] = []
    for part in parts_of(schema, root, ("allOf", "anyOf", "oneOf")):
        properties = part.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            return properties[key]
        patterns = part.get("patternProperties")
        others += patterns.values() if isinstance(patterns, Mapping) else []
        if isinstance(part.get("additionalProperties"), Mapping):
            others.append(part["additionalProperties"])
    return {"anyOf": others} if others else None


class Value:
    """One parameter's value, from pieces of the model's text to pieces of JSON.

    Example:
        >>> value = Value(frozenset({"string"}))
        >>> value.push('say "') + value.push('hi"') + value.close()
        '"say \\\\"hi\\\\""'
    """

    def __init__(self, types: frozenset[str]) -> None:
        self._types = types
        self._streams = types == {"string"}  # nothing has to be known about the rest of the text
        self._held = ""
        self._opened = False

    def push(self, text: str) -> str:
        """The JSON that is certain now."""
        if self._streams:
            return self._string(text)
        self._held += text
        begin = self._held.lstrip(_SPACE)[:1]
        if "string" in self._types and begin and begin not in _JSON_BEGINS:
            self._streams = True
            text, self._held = self._held, ""
            return self._string(text)
        return ""

    def close(self) -> str:
        """The rest, when the value has ended."""
        if self._streams:
            return self._string("") + '"'
        fitting = fit(self._held, self._types)
        return fitting if fitting is not None else _quoted(self._held)

    def cut(self) -> str:
        """The rest as it stands, when the text was cut off inside of the value."""
        return "" if self._streams else self._held

    def _string(self, text: str) -> str:
        quote, self._opened = "" if self._opened else '"', True
        return quote + _quoted(text)[1:-1]


def fit(text: str, types: frozenset[str]) -> str | None:
    """``text`` as JSON of one of ``types`` that is not a string; None if it is none."""
    stripped = text.strip(_SPACE)
    if "string" not in types:
        stripped = _PYTHON_WORDS.get(stripped, stripped)
    try:
        value = json.loads(stripped, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, str) or not _types_of(value) & types:
        return None
    return stripped


def _no_json(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
