"""Requests in Anthropic's shape, checked and turned into jobs.

This file owns which fields are known and what they mean to the engine. It knows no response and no
HTTP. Fields that are not known are kept aside, to be warned of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from lily.server.core import ChatJob
from lily.server.errors import BadRequest

# Claude Code opens its system prompt with a line that is another one in every request. It says
# nothing to a model, and a prompt that begins differently finds nothing in the prefix cache.
_BILLING = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n*", re.IGNORECASE)
# Sent by many clients; they change nothing about an answer of a server with one model.
_HARMLESS = (
    "betas",
    "cache_control",
    "container",
    "context_management",
    "diagnostics",
    "inference_geo",
    "metadata",
    "service_tier",
    "speed",
)
_NAME = Annotated[str, Field(min_length=1, max_length=256)]
_STOP = Annotated[str, Field(min_length=1, max_length=1000)]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class TextBlock(_Body):
    """Text."""

    type: Literal["text"]
    text: str


class ThinkingBlock(_Body):
    """What the model thought in an earlier turn; the signature is not looked at."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(_Body):
    """Thinking that another server has hidden; nothing can be made of it."""

    type: Literal["redacted_thinking"]


class ToolUseBlock(_Body):
    """A call that the model made in an earlier turn."""

    type: Literal["tool_use"]
    id: str
    name: _NAME
    input: dict[str, Any]


def _readable(kinds: tuple[str, ...]) -> BeforeValidator:
    """Refuses blocks that are not text in words of their own; ``kinds`` are those that are read."""

    def check(block: Any) -> Any:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if isinstance(kind, str) and kind not in kinds:
            raise ValueError(f"this model reads text only, no block of type {kind!r}")
        return block

    return BeforeValidator(check)


_TextOnly: TypeAlias = "Annotated[TextBlock, _readable(('text',))]"


class ToolResultBlock(_Body):
    """What a tool gave."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[_TextOnly] | None = None
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """The result as the model reads it; the template has no other way to tell an error."""
        text = _joined(self.content or "", "\n")
        return f"Error: {text}" if self.is_error else text


_Block: TypeAlias = (
    "Annotated[Annotated[TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock"
    " | ToolResultBlock, Field(discriminator='type')], _readable(_KINDS)]"
)
_KINDS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")


class AnthropicMessage(_Body):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: str | list[_Block]

    def plain(self) -> Iterator[dict[str, Any]]:
        """As the engine's chat template reads it: results are messages of their own."""
        if isinstance(self.content, str):
            yield {"role": self.role, "content": self.content}
        elif self.role == "assistant":
            yield self._assistant(self.content)
        else:
            yield from self._others(self.content)

    def _others(self, blocks: list[Any]) -> Iterator[dict[str, Any]]:
        texts: list[str] = []
        for block in blocks:
            if isinstance(block, TextBlock):
                texts.append(block.text)
            elif isinstance(block, ToolResultBlock):
                if texts:
                    yield {"role": self.role, "content": "\n\n".join(texts)}
                    texts = []
                yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": block.text}
            else:
                raise ValueError(f"a block of type {block.type!r} belongs to the assistant")
        if texts:
            yield {"role": self.role, "content": "\n\n".join(texts)}

    def _assistant(self, blocks: list[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"role": "assistant", "content": ""}
        thoughts: list[str] = []
        calls: list[dict[str, Any]] = []
        for block in blocks:
            if isinstance(block, TextBlock):
                found["content"] += block.text  # calls may have parted what was one text
            elif isinstance(block, ThinkingBlock):
                thoughts.append(block.thinking)
            elif isinstance(block, ToolUseBlock):
                function = {"name": block.name, "arguments": block.input}
                calls.append({"id": block.id, "type": "function", "function": function})
            elif isinstance(block, ToolResultBlock):
                raise ValueError("a block of type 'tool_result' belongs to the user")
        if any(thoughts):
            found["reasoning_content"] = "".join(thoughts)
        if calls:
            found["tool_calls"] = calls
        return found

    @model_validator(mode="after")
    def _well_formed(self) -> AnthropicMessage:
        for _ in self.plain():
            pass
        return self


class AnthropicTool(_Body):
    """A tool that the client runs."""

    type: str | None = Field(None, description='"custom", the only kind, or nothing.')
    name: _NAME
    description: str | None = None
    input_schema: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _runs_in_the_client(self) -> AnthropicTool:
        if self.type not in (None, "custom"):
            raise ValueError(f"tools of type {self.type!r} are not here, only those of the client")
        if self.input_schema is None:
            raise ValueError("a tool needs an input_schema")
        return self

    def plain(self) -> dict[str, Any]:
        """In OpenAI's shape, with nothing that a client might change between requests."""
        function = {"name": self.name, "description": self.description}
        function = {key: value for key, value in function.items() if value is not None}
        return {"type": "function", "function": {**function, "parameters": self.input_schema}}


class ToolChoice(_Body):
    """Whether tools may, must or must not be used."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(_Body):
    """Whether the model thinks; without this field it does not, as with Anthropic."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = Field(None, ge=1, description="Not enforced.")


class OutputFormat(_Body):
    """A JSON schema that the answer must match."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(_Body):
    """How the answer shall be."""

    effort: str | None = Field(None, description="Changes nothing.")
    format: OutputFormat | None = None


class CountRequest(_Body):
    """The body of /v1/messages/count_tokens."""

    model: str | None = Field(None, description="Any name; this server has one model.")
    messages: list[AnthropicMessage] = Field(min_length=1)
    system: str | list[_TextOnly] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_harmless(cls, body: Any) -> Any:
        if not isinstance(body, Mapping):
            return body
        return {key: value for key, value in body.items() if key not in _HARMLESS}

    @model_validator(mode="after")
    def _consistent(self) -> CountRequest:
        choice = self.tool_choice
        if choice is not None and choice.type in ("any", "tool") and not self.tools:
            raise BadRequest("tool_choice needs tools", param="tool_choice")
        if choice is not None and choice.type == "tool":
            known = [tool.name for tool in self.tools or ()]
            if choice.name not in known:
                raise BadRequest(
                    f"tool_choice names {choice.name!r}, expected one of {', '.join(known)}",
                    param="tool_choice",
                )
        if self.messages[-1].role == "assistant":
            raise BadRequest(
                "messages ends with an assistant's message, expected the user's: an answer that "
                "was begun by the client cannot be continued here",
                param="messages",
            )
        return self

    def job(self) -> ChatJob:
        """What decides the prompt."""
        system = _system(self.system)
        prompt: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        begun = False
        for message in self.messages:
            begun = begun or message.role != "system"
            prompt += map(_in_place, message.plain()) if begun else message.plain()
        choice = self.tool_choice
        return ChatJob(
            prompt=prompt,
            tools=[tool.plain() for tool in self.tools or ()],
            tool_choice=self._choice,
            parallel_tool_calls=not (choice and choice.disable_parallel_tool_use),
            constraint=self._constraint,
            enable_thinking=self.thinking is not None and self.thinking.type != "disabled",
            sampling=self.sampling,
        )

    @property
    def sampling(self) -> dict[str, Any]:
        """Fields of SamplingParams."""
        return {}

    @property
    def _choice(self) -> str | dict[str, str]:
        choice = self.tool_choice
        if choice is None:
            return "auto"
        if choice.type == "tool":
            return {"name": choice.name or ""}
        return "required" if choice.type == "any" else choice.type

    @property
    def _constraint(self) -> dict[str, Any]:
        wanted = self.output_config.format if self.output_config is not None else None
        wanted = wanted or self.output_format
        return {} if wanted is None else {"schema": wanted.schema_}


class MessagesRequest(CountRequest):
    """The body of /v1/messages."""

    max_tokens: int = Field(ge=1, description="Clamped to what the context holds.")
    stream: bool | None = None
    stop_sequences: Annotated[list[_STOP], Field(max_length=64)] | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, ge=0, le=1)

    @property
    def sampling(self) -> dict[str, Any]:
        """Fields of SamplingParams; those that are not given are the checkpoint's."""
        names = ("max_tokens", "temperature", "top_k", "top_p")
        found = {name: getattr(self, name) for name in names}
        found["stop"] = self.stop_sequences or None
        return {name: value for name, value in found.items() if value is not None}


def _system(system: str | list[TextBlock] | None) -> str:
    """The system prompt without the line of billing."""
    blocks = [system] if isinstance(system, str) else [block.text for block in system or ()]
    left = [
        _BILLING.sub("", block, count=1) if _BILLING.match(block) else block for block in blocks
    ]
    return "\n\n".join(block for block in left if block)


def _in_place(message: dict[str, Any]) -> dict[str, Any]:
    """A system message amid the others as a note of the user's.

    Templates know system messages at the front only; there, a new one in every turn would leave
    nothing of the prompt that was computed before.
    """
    if message["role"] != "system":
        return message
    note = f"<system-reminder>\n{message['content']}\n</system-reminder>"
    return {"role": "user", "content": note}


def _joined(content: str | list[TextBlock], between: str) -> str:
    return content if isinstance(content, str) else between.join(block.text for block in content)
