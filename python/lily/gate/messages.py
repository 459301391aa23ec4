"""The texts in a chat: messages, parts, tool calls and results, as OpenAI or Anthropic write them.

This file owns the walk through such a structure and the way back into it. Everything that is sent
is text here: contents, arguments inside their JSON, numbers, and keys that are no plain names. It
knows no detector and no rule.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lily.errors import InvalidInput
from lily.gate.findings import Finding, Verdict

_TEXT_TYPES = frozenset(
    {
        *("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"),
        *("thinking", "reasoning", "message", "function", "custom"),
        *("function_call", "function_call_output", "tool_use", "tool_result"),
    }
)
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_IDS = frozenset({"id", "call_id", "tool_call_id", "tool_use_id"})
_MADE_ID = re.compile(r"(call|toolu|fc|msg|rs)[_-][A-Za-z0-9_-]{1,64}")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_MAX_DEPTH = 64
GLUE = "\n"


@dataclass(frozen=True)
class _Text:
    """The place of a text in a structure, and of the number that it was."""

    index: int
    number: int | float | None = None


@dataclass(frozen=True)
class _Json:
    """JSON text in a structure; ``text`` as it was written."""

    inner: Any
    text: str


@dataclass
class Parts:
    """The texts of something that would be sent, and how it is put together again.

    Attributes:
        texts: all of them, in order.
        paths: where each stands, such as "messages[1].content".
        speakers: the role that each belongs to.
        names: the key that each stands under inside arguments, for detectors need it; else empty.
        unread: kinds of content that are no text.
    """

    texts: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    speakers: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    _shape: Any = None

    @staticmethod
    def of_text(text: str) -> Parts:
        """The parts of one text."""
        return Parts([text], ["text"], ["user"], [""])

    def together(self, texts: Sequence[str]) -> tuple[str, list[int]]:
        """These texts as one, each behind its name, and where each begins."""
        pieces: list[str] = []
        starts: list[int] = []
        length = 0
        for name, text in zip(self.names, texts, strict=True):
            head = (GLUE if starts else "") + (f"{name}: " if name else "")
            starts.append(length + len(head))
            length += len(head) + len(text)
            pieces += [head, text]
        return "".join(pieces), starts

    @property
    def joined(self) -> str:
        """All texts as one, as detectors see them."""
        return self.together(self.texts)[0]

    def places(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        """For each finding of ``joined`` where the text stands in which it begins."""
        starts = self.together(self.texts)[1]
        return tuple(self.paths[max(bisect_right(starts, one.start) - 1, 0)] for one in findings)

    def rebuilt(self, texts: Sequence[str]) -> Any:
        """The structure with other texts in it."""
        return _rebuilt(self._shape, self.texts, texts)


@dataclass(frozen=True)
class ChatVerdict:
    """The answer of ``Gate.inspect_messages``.

    ``verdict`` is on all texts as one: its offsets and ``masked`` are those of the joined texts.
    ``messages`` are the masked ones; none where the chat could not be judged. ``places`` says for
    each finding where in the chat it begins.
    """

    verdict: Verdict
    messages: list[dict[str, Any]] = field(repr=False)
    places: tuple[str, ...] = ()


def parts_of(messages: Sequence[Mapping[str, Any]]) -> Parts:
    """The texts of a chat. Raises InvalidInput for what is none."""
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise InvalidInput(f"messages is {type(messages).__name__}, expected a list of messages")
    parts = Parts()
    shape = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidInput(f"messages[{index}] is {type(message).__name__}, expected an object")
        walk = _Walk(parts, str(message.get("role", "user")))
        shape.append(walk.visit(message, f"messages[{index}]", 0))
    parts._shape = shape
    return parts


class _Walk:
    """Collects the texts of one message."""

    def __init__(self, parts: Parts, speaker: str) -> None:
        self._parts = parts
        self._speaker = speaker

    def visit(self, value: Any, path: str, depth: int, name: str = "", inside: bool = False) -> Any:
        """The shape of a value; ``inside`` is inside the arguments or the result of a tool call."""
        if depth > _MAX_DEPTH:
            raise InvalidInput(f"{path[:80]} is nested deeper than {_MAX_DEPTH} levels")
        if isinstance(value, str):
            return self._text(value, path, name)
        if isinstance(value, Mapping):
            return self._object(value, path, depth, inside)
        if isinstance(value, (list, tuple)):
            return [
                self.visit(one, f"{path}[{index}]", depth + 1, name, inside)
                for index, one in enumerate(value)
            ]
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return self._text(str(value), path, name, number=value)
        raise InvalidInput(f"{path} is {type(value).__name__}, expected what JSON has")

    def _object(self, value: Mapping[Any, Any], path: str, depth: int, inside: bool) -> Any:
        kind = value.get("type")
        if not inside and isinstance(kind, str) and kind not in _TEXT_TYPES:
            self._parts.unread.add(kind if _PLAIN_KEY.fullmatch(kind) else "unknown")
            return dict(value)
        made = []
        for key, one in value.items():
            if not isinstance(key, str):
                raise InvalidInput(f"{path} has the key {type(key).__name__}, expected a string")
            plain = bool(_PLAIN_KEY.fullmatch(key))
            place = f"{path}.{key}" if plain else f"{path}[...]"
            shape = key if plain else self._text(key, place, "")
            if not inside and _is_structure(key, one):
                made.append((shape, one))
            elif not inside and key in ("arguments", "input"):
                made.append((shape, self._arguments(one, place, depth)))
            else:
                made.append(
                    (shape, self.visit(one, place, depth + 1, key if inside else "", inside))
                )
        return dict(made) if all(isinstance(key, str) for key, _ in made) else _Pairs(made)

    def _arguments(self, value: Any, path: str, depth: int) -> Any:
        """What a tool is called with: an object, or its JSON."""
        if not isinstance(value, str):
            return self.visit(value, path, depth + 1, inside=True)
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return self._text(value, path, "")
        return _Json(self.visit(inner, path, depth + 1, inside=True), value)

    def _text(self, text: str, path: str, name: str, number: int | float | None = None) -> _Text:
        parts = self._parts
        parts.texts.append(text)
        parts.paths.append(path)
        parts.speakers.append(self._speaker)
        parts.names.append(name)
        return _Text(len(parts.texts) - 1, number)


class _Pairs(list[Any]):
    """An object some of whose keys are texts."""


def _is_structure(key: str, value: Any) -> bool:
    """Whether a text only says how the chat is built."""
    if not isinstance(value, str):
        return False
    if key in _IDS:
        return bool(_MADE_ID.fullmatch(value))
    return (key == "role" and value in _ROLES) or (key == "type" and value in _TEXT_TYPES)


def _rebuilt(shape: Any, before: Sequence[str], after: Sequence[str]) -> Any:
    if isinstance(shape, _Text):
        changed = after[shape.index] != before[shape.index]
        return shape.number if shape.number is not None and not changed else after[shape.index]
    if isinstance(shape, _Json):
        made = _rebuilt(shape.inner, before, after)
        unchanged = made == _rebuilt(shape.inner, before, before)
        return shape.text if unchanged else json.dumps(made)
    if isinstance(shape, _Pairs):
        return {_rebuilt(key, before, after): _rebuilt(one, before, after) for key, one in shape}
    if isinstance(shape, dict):
        return {key: _rebuilt(one, before, after) for key, one in shape.items()}
    if isinstance(shape, list):
        return [_rebuilt(one, before, after) for one in shape]
    return shape
