"""The functions that a caller declared, and which of them the model may or must call.

This file owns the shape of ``tools`` and ``tool_choice``. It knows no text of a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from lily.errors import InvalidInput

ToolChoice: TypeAlias = "Literal['auto', 'none', 'required'] | Mapping[str, str]"
"""Whether the model may call ("auto"), must ("required"), must call ``{"name": ...}``, or not."""

# What a call writes between "<function=" and ">".
_NAME = re.compile(r"[^<>\s]+")


@dataclass(frozen=True)
class Tool:
    """A function that the model may call.

    Attributes:
        name: its name; a call of any other name is no call.
        parameters: JSON schema of its arguments; empty if none was declared.
        where: where the caller declared it, for messages.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    where: str = "tools"


def declared(tools: Sequence[Mapping[str, Any]] | None) -> tuple[Tool, ...]:
    """The functions of ``tools``, in OpenAI's shape or as the bare ``function`` inside of it.

    Raises InvalidInput that names the entry.
    """
    if tools is None:
        return ()
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise InvalidInput("tools is not a list of dicts (JSON schemas of functions)")
    return tuple(_tool(entry, f"tools[{index}]") for index, entry in enumerate(tools))


def _tool(entry: Any, where: str) -> Tool:
    if not isinstance(entry, Mapping):
        raise InvalidInput(f"{where} is {type(entry).__name__}, expected a dict")
    function = entry.get("function", entry)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise InvalidInput(f"{where} has no function name")
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{where} is called {name!r}; a name has no spaces, '<' or '>'")
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, Mapping):
        raise InvalidInput(f"{where}.parameters is {type(parameters).__name__}, expected a dict")
    return Tool(name, parameters, where)


def chosen(tools: Sequence[Tool], choice: ToolChoice) -> tuple[Literal["auto", "none"], list[Tool]]:
    """What ``tool_choice`` means for these tools: the mode, and the functions that must be called.

    The list is empty if the model need not call any. Raises InvalidInput for an unknown choice, a
    name that is not declared, or a must without tools.
    """
    if isinstance(choice, Mapping):
        name = choice.get("name")
        found = [tool for tool in tools if tool.name == name]
        if not found:
            known = ", ".join(tool.name for tool in tools) or "none"
            raise InvalidInput(f"tool_choice names {name!r}; declared tools: {known}")
        return "auto", found[:1]
    if choice not in ("auto", "none", "required"):
        raise InvalidInput(
            f'tool_choice is {choice!r}, expected "auto", "none", "required" or {{"name": ...}}'
        )
    if choice == "required":
        if not tools:
            raise InvalidInput('tool_choice is "required" but no tools are declared')
        return "auto", list(tools)
    return ("none" if choice == "none" else "auto"), []
