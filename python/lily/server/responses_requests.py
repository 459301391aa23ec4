"""Requests in the shape of OpenAI's Responses API, checked and turned into jobs.

This file owns which fields are known and what they mean to the engine. Nothing is stored between
requests, so what refers to an earlier one is refused by name. It knows no response and no HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from lily.server.core import ChatJob
from lily.server.errors import BadRequest
from lily.server.openai_requests import Effort

# Sent by many clients; they change nothing about an answer of a server with one model.
_HARMLESS = (
    "client_metadata",
    "max_tool_calls",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "stream_options",
    "user",
)
# These would need a store of earlier requests, or of files; null and false are fine.
_STATEFUL = ("previous_response_id", "conversation", "background", "prompt")
_ENCRYPTED = "reasoning.encrypted_content"  # thinking is sent in the open, which serves the same


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Int = Annotated[int, BeforeValidator(_whole)]


class TextPart(_Body):
    """Text, or a refusal of another model."""

    type: Literal["input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text"]
    text: str = ""
    refusal: str = ""

    @property
    def words(self) -> str:
        """What it says."""
        return self.text or self.refusal


def _text_only(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind.partition("_")[2] in ("image", "file", "audio", "video"):
        raise ValueError(f"this model reads text only, no part of type {kind!r}")
    return part


_Parts: TypeAlias = "str | list[Annotated[TextPart, BeforeValidator(_text_only)]]"


class MessageItem(_Body):
    """A message; ``type`` may be left out."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: _Parts


class ReasoningItem(_Body):
    """What the model thought in an earlier turn."""

    type: Literal["reasoning"]
    content: list[TextPart] | None = None
    summary: list[TextPart] | None = None


def _json_object(text: str) -> str:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("this is not a JSON object")
    return text


class CallItem(_Body):
    """A call that the model made in an earlier turn."""

    type: Literal["function_call"]
    call_id: str
    name: str = Field(min_length=1, max_length=256)
    arguments: Annotated[str, AfterValidator(_json_object)]

    def plain(self) -> dict[str, Any]:
        """As the engine's chat template reads it."""
        function = {"name": self.name, "arguments": json.loads(self.arguments or "{}")}
        return {"id": self.call_id, "type": "function", "function": function}


class CallOutputItem(_Body):
    """What a function gave."""

    type: Literal["function_call_output"]
    call_id: str
    output: _Parts


_KINDS = ("message", "reasoning", "function_call", "function_call_output")


def _known_item(item: Any) -> Any:
    """Gives a message its type, and refuses what is not read here in words of its own."""
    if not isinstance(item, Mapping):
        return item
    kind = item.get("type", "message")
    if kind == "item_reference":
        raise ValueError("nothing is stored here that could be referred to; send the item itself")
    if isinstance(kind, str) and kind not in _KINDS:
        raise ValueError(f"items of type {kind!r} are not supported")
    return {**item, "type": kind}


_Item: TypeAlias = (
    "Annotated[Annotated[MessageItem | ReasoningItem | CallItem | CallOutputItem,"
    " Field(discriminator='type')], BeforeValidator(_known_item)]"
)


class ResponseTool(_Body):
    """A tool; functions are the only kind that is used, others are left out with a warning."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _named(self) -> ResponseTool:
        if self.type == "function" and not self.name:
            raise ValueError("a function needs a name")
        return self

    def plain(self) -> dict[str, Any]:
        """As the engine's chat template reads it."""
        names = ("name", "description", "parameters")
        function = {key: getattr(self, key) for key in names if getattr(self, key) is not None}
        return {"type": "function", "function": function}


class FunctionChoice(_Body):
    """A choice of one function."""

    type: Literal["function"]
    name: str


class TextFormat(_Body):
    """What the answer must be."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")

    @model_validator(mode="after")
    def _complete(self) -> TextFormat:
        if self.type == "json_schema" and self.schema_ is None:
            raise ValueError('type "json_schema" needs a schema')
        return self


class TextOptions(_Body):
    """How the text shall be."""

    format: TextFormat | None = None
    verbosity: str | None = Field(None, description="Changes nothing.")


class Reasoning(_Body):
    """Whether to think."""

    effort: Effort | None = Field(None, description='"none" and "minimal": no thinking.')
    summary: str | None = Field(None, description="The thinking is sent as it is, not summed up.")


class ResponsesRequest(_Body):
    """The body of /v1/responses."""

    model: str | None = Field(None, description="Any name; this server has one model.")
    input: str | list[_Item]
    instructions: str | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    stream: bool | None = None
    max_output_tokens: _Int | None = Field(None, ge=1, description="Clamped to the context.")
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    metadata: dict[str, str] | None = None
    store: bool | None = Field(None, description="Nothing is stored, whatever this says.")
    include: list[str] | None = None
    truncation: str | None = Field(None, description="Nothing is cut off; too much is refused.")

    @model_validator(mode="before")
    @classmethod
    def _without_harmless(cls, body: Any) -> Any:
        if not isinstance(body, Mapping):
            return body
        for name in _STATEFUL:
            if body.get(name):
                text = f"{name} is not supported: this server keeps nothing between requests"
                if name in ("previous_response_id", "conversation"):
                    text += "; send the earlier items in input"
                raise BadRequest(text, param=name)
        harmless = (*_HARMLESS, *_STATEFUL)
        return {key: value for key, value in body.items() if key not in harmless}

    @model_validator(mode="after")
    def _consistent(self) -> ResponsesRequest:
        if self.input == []:
            raise BadRequest("input is empty", param="input")
        if self.tool_choice not in (None, "none", "auto") and not self.functions:
            raise BadRequest("tool_choice needs tools of type function", param="tool_choice")
        if isinstance(self.tool_choice, FunctionChoice):
            known = [tool.name or "" for tool in self.functions]
            if self.tool_choice.name not in known:
                raise BadRequest(
                    f"tool_choice names {self.tool_choice.name!r}, "
                    f"expected one of {', '.join(known)}",
                    param="tool_choice",
                )
        return self

    @property
    def functions(self) -> list[ResponseTool]:
        """The tools that the model gets to know."""
        return [tool for tool in self.tools or () if tool.type == "function"]

    @property
    def not_done(self) -> list[str]:
        """What is asked for and cannot be, and is not worth a refusal."""
        found = []
        others = sorted({tool.type[:40] for tool in self.tools or () if tool.type != "function"})
        if others:
            found.append(f"left out tools of type {', '.join(others[:8])}: only functions are here")
        included = [name[:60] for name in self.include or () if name != _ENCRYPTED]
        if included:
            found.append(f"include is ignored: {', '.join(included[:8])}")
        if self.store:
            found.append("store is ignored: nothing is kept between requests")
        if self.truncation not in (None, "disabled"):
            found.append("truncation is ignored: nothing is cut off, too much is refused")
        return found

    def job(self) -> ChatJob:
        """What to run."""
        given = {
            "max_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }
        effort = self.reasoning.effort if self.reasoning is not None else None
        choice = self.tool_choice
        return ChatJob(
            prompt=self._messages,
            tools=[tool.plain() for tool in self.functions],
            tool_choice={"name": choice.name}
            if isinstance(choice, FunctionChoice)
            else choice or "auto",
            parallel_tool_calls=self.parallel_tool_calls is not False,
            constraint=self._constraint,
            sampling={name: value for name, value in given.items() if value is not None},
            enable_thinking=None if effort is None else effort not in ("none", "minimal"),
        )

    @property
    def _constraint(self) -> dict[str, Any]:
        wanted = self.text.format if self.text is not None else None
        if wanted is None or wanted.type == "text":
            return {}
        return {"schema": {"type": "object"} if wanted.type == "json_object" else wanted.schema_}

    @property
    def _messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if self.instructions:
            found.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*found, {"role": "user", "content": self.input}]
        for item in self.input:
            _add(found, item)
        return found


def _add(messages: list[dict[str, Any]], item: Any) -> None:
    """Add an item to the messages; what the assistant said in one turn is one message."""
    if isinstance(item, CallOutputItem):
        content = _words(item.output)
        messages.append({"role": "tool", "tool_call_id": item.call_id, "content": content})
    elif isinstance(item, MessageItem) and item.role != "assistant":
        messages.append({"role": item.role, "content": _words(item.content)})
    elif isinstance(item, MessageItem):
        _turn(messages)["content"] += _words(item.content)
    elif isinstance(item, CallItem):
        _turn(messages).setdefault("tool_calls", []).append(item.plain())
    else:
        turn = _turn(messages)
        if turn["content"] or "tool_calls" in turn:  # thinking begins a turn
            turn = {"role": "assistant", "content": ""}
            messages.append(turn)
        thought = _words(item.content or item.summary or [])
        turn["reasoning_content"] = turn.get("reasoning_content", "") + thought


def _turn(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message at the end of ``messages``, which is made if there is none."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _words(content: str | list[TextPart]) -> str:
    return content if isinstance(content, str) else "".join(part.words for part in content)
