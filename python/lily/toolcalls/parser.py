"""Where calls begin and end in the model's answer, while it is being written.

This file owns the rules that part text from calls. It is pushed pieces of text, cut anywhere, and
gives back text and pieces of calls; the result does not depend on the cuts. It knows no tokens.

What is a call:

- ``<tool_call>``, ``<function=NAME>`` of a declared function, then a parameter or ``</function>``;
  the first tag may be missing. Or ``<tool_call>`` and a JSON object ``{"name", "arguments"}`` with
  the name of a declared function. Anything else, an undeclared name too, is text, to the letter.
- Up to two newlines before a call are the template's and no text.
- A value ends at ``</parameter>`` (or debris such as ``</parameter1>``) only where the next
  parameter or the end of the call follows; elsewhere such a tag is a part of the value. One
  newline after the opening and one before the closing tag are the template's; all else is exact.

What is cut off:

- A call that the model itself ended in a broken closing tag is complete. Any other call without an
  end is not: ``complete`` is False, and its arguments are JSON as far as it came, never closed, so
  nobody runs half a call by mistake.
- A beginning of a call whose name was not there yet is no text and no call; it is in ``cut``, and
  so are newlines behind a call that nothing follows.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from lily.completion import ToolCall, ToolCallDelta
from lily.toolcalls.declared import Tool
from lily.toolcalls.markup import (
    BEGIN,
    END_CALL,
    END_VALUE,
    FUNCTION,
    MAY_BEGIN,
    MAY_END_CALL,
    MAY_END_VALUE,
    NEXT,
    OPEN_CALL,
)
from lily.toolcalls.values import Value, allowed_types, schema_of

Event = str | ToolCallDelta
_JSON_HEAD = re.compile(
    r'\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*', re.ASCII
)
_CALL_KEYS = {"name", "arguments", "parameters", "id", "type"}


def _call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class _Call:
    """A call so far."""

    def __init__(self, call_id: str, tool: Tool) -> None:
        self.id, self.tool = call_id, tool
        self.arguments: list[str] = []
        self.complete = False


class CallParser:
    """Parts an answer into text and calls of ``tools``.

    Example:
        >>> parser = CallParser([Tool("now")])
        >>> parser.push("Wait.\\n\\n<tool_call>\\n<function=now>\\n</function>\\n</tool_call>")[0]
        'Wait.'
        >>> [call.name for call in parser.calls]
        ['now']
    """

    def __init__(self, tools: Sequence[Tool], new_id: Callable[[], str] = _call_id) -> None:
        self._tools = {tool.name: tool for tool in reversed(tools)}
        self._new_id = new_id
        self._state: Callable[[], bool] = self._in_text
        self._buffer = ""  # what is not decided yet
        self._events: list[Event] = []
        self._calls: list[_Call] = []
        self._value: Value | None = None
        self._behind_call = False  # no text since the last call
        self._fresh = False  # the newline after <parameter=...> is still to come
        self._json = _JsonEnd()
        self.cut = ""
        """The beginning of a call that ended before its name was known, or newlines before it."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls so far, the unfinished one too."""
        return tuple(
            ToolCall(call.id, call.tool.name, "".join(call.arguments), call.complete)
            for call in self._calls
        )

    @property
    def settled(self) -> bool:
        """Whether there is a call and none is open."""
        return bool(self._calls) and self._state == self._in_text

    def push(self, text: str) -> list[Event]:
        """Take more of the answer; returns what is certain now, in order."""
        self._buffer += text
        while self._state():
            pass
        events, self._events = self._events, []
        return events

    def finish(self, *, ended: bool) -> list[Event]:
        """No more text follows. ``ended``: the model itself ended its answer."""
        rest, self._buffer = self._buffer, ""
        if self._state == self._in_text:
            between_calls = self._behind_call and rest.isspace()
            if OPEN_CALL in rest or FUNCTION in rest or between_calls:
                self.cut = rest
            else:
                self._say(rest)
        elif self._state == self._in_json:
            self._end_json(rest, ended)
        elif self._state == self._in_value:
            self._end_in_value(rest, ended)
        events, self._events = self._events, []
        return events

    # Each state takes from the buffer what it can and returns whether to look again.

    def _in_text(self) -> bool:
        begin = self._next_begin()
        waiting = MAY_BEGIN.search(self._buffer)
        start = waiting.start() if waiting else len(self._buffer)
        if begin is None or start < begin.start():
            self._say(self._take(start))
            return False
        self._say(self._take(begin.start()))
        if begin["name"] is None:
            self._json = _JsonEnd(begin.end() - begin.start())
            self._state = self._in_json
            return True
        self._take(begin.end() - begin.start())
        self._open(self._tools[begin["name"]])
        return self._go_on()

    def _next_begin(self) -> re.Match[str] | None:
        at = 0
        while (begin := BEGIN.search(self._buffer, at)) is not None:
            if begin["name"] is None or begin["name"] in self._tools:
                return begin
            at = begin.start() + 1
        return None

    def _go_on(self) -> bool:
        """After a name or a value, where it is known that a part of a call follows."""
        found = NEXT.match(self._buffer)
        assert found is not None, "whoever comes here has seen that it matches"
        self._take(found.end())
        if found["key"] is not None:
            self._begin_value(found["key"])
        else:
            self._close()
            self._state = self._after_function if found["end"] else self._in_text
        return True

    def _begin_value(self, key: str) -> None:
        call = self._calls[-1]
        root = call.tool.parameters
        self._value = Value(allowed_types(schema_of(key, root, root), root))
        self._fresh = True
        separator = ", " if call.arguments else "{"
        self._write(separator + json.dumps(key, ensure_ascii=False) + ": ")
        self._state = self._in_value

    def _in_value(self) -> bool:
        assert self._value is not None
        if self._fresh and self._buffer:
            self._buffer = self._buffer.removeprefix("\n")
            self._fresh = False
        end = END_VALUE.search(self._buffer)
        waiting = MAY_END_VALUE.search(self._buffer)
        start = waiting.start() if waiting else len(self._buffer)
        if end is None or start < end.start():
            self._write(self._value.push(self._take(start)))
            return False
        self._write(self._value.push(self._take(end.start())))
        self._take(end.end() - end.start())
        self._write(self._value.close())
        return self._go_on()

    def _after_function(self) -> bool:
        end = END_CALL.match(self._buffer)
        if end is None and MAY_END_CALL.match(self._buffer):
            return False
        self._take(end.end() if end else 0)
        self._state = self._in_text
        return True

    def _in_json(self) -> bool:
        end = self._json.find(self._buffer)
        if end is None:
            return False
        self._end_json(self._take(end), ended=True)
        return True

    def _end_json(self, text: str, ended: bool) -> None:
        """``text`` is all of the call, or what there is of it if the answer is over."""
        body = text[self._json.begin :]
        closed = body.rstrip() + "}" * self._json.depth if ended else body
        found = _json_call(closed)
        head = _JSON_HEAD.match(body)
        if found is not None and found[0] in self._tools:
            self._open(self._tools[found[0]])
            self._write(found[1])
            self._calls[-1].complete = True
        elif head is not None and head[1] in self._tools:
            self._open(self._tools[head[1]])
            self._write(body[head.end() :])
        elif self._json.over:
            # No call: its tag is text, and behind it may stand something else.
            self._say(text[: self._json.begin])
            self._buffer = body + self._buffer
            self._state = self._in_text
            return
        else:
            self.cut = text
        self._state = self._after_function

    def _end_in_value(self, rest: str, ended: bool) -> None:
        assert self._value is not None
        debris = "</" in rest
        if not debris:
            self._write(self._value.push(rest))
        if debris and ended:
            self._write(self._value.close())
            self._close()
        else:
            self._write(self._value.cut())

    def _open(self, tool: Tool) -> None:
        self._calls.append(_Call(self._new_id(), tool))
        self._behind_call = True
        self._events.append(ToolCallDelta(len(self._calls) - 1, self._calls[-1].id, tool.name, ""))

    def _close(self) -> None:
        call = self._calls[-1]
        self._write("}" if call.arguments else "{}")
        call.complete = True

    def _write(self, arguments: str) -> None:
        if arguments:
            self._calls[-1].arguments.append(arguments)
            self._events.append(ToolCallDelta(len(self._calls) - 1, None, None, arguments))

    def _say(self, text: str) -> None:
        if text:
            self._events.append(text)
            self._behind_call = False

    def _take(self, length: int) -> str:
        taken, self._buffer = self._buffer[:length], self._buffer[length:]
        return taken


class _JsonEnd:
    """Looks for the end of a JSON object that begins at ``begin``, each character once."""

    def __init__(self, begin: int = 0) -> None:
        self.begin = self._at = begin
        self.depth = 0
        self.over = False
        self._quoted = self._escaped = False

    def find(self, text: str) -> int | None:
        """Where it ends: behind its last brace, or at a "<", which JSON has in quotes only."""
        for at in range(self._at, len(text)):
            char = text[at]
            if self._quoted:
                self._quoted = self._escaped or char != '"'
                self._escaped = char == "\\" and not self._escaped
            elif char == '"':
                self._quoted = True
            elif char == "<":
                self.over = True
                return at
            elif char in "{[":
                self.depth += 1
            elif char in "}]":
                self.depth -= 1
                if self.depth == 0:
                    self.over = True
                    return at + 1
        self._at = len(text)
        return None


def _json_call(text: str) -> tuple[str, str] | None:
    """Name and arguments of a call in JSON; None if it is none."""
    try:
        # Not strict: models write newlines into strings as they are.
        call = json.loads(text, strict=False)
        if not isinstance(call, dict) or not set(call) <= _CALL_KEYS:
            return None
        arguments: Any = call.get("arguments", call.get("parameters", {}))
        if isinstance(arguments, str):
            arguments = json.loads(arguments, strict=False)
        if not isinstance(call.get("name"), str) or not isinstance(arguments, dict):
            return None
        return call["name"], json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return None
