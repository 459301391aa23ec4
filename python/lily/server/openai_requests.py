"""Requests in OpenAI's shape, checked and turned into jobs.

This file owns which fields are known, their ranges, and what they mean to the engine. It knows no
response and no HTTP. Fields that are not known are kept aside, to be warned of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from lily.server.core import ChatJob
from lily.server.errors import BadRequest

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
_NO_THINKING = ("none", "minimal")
# Sent by many clients; they change nothing about an answer of a server with one model.
_HARMLESS = (
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
)


def _whole(value: Any) -> Any:
    """Some clients write integers as 100.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Int = Annotated[int, BeforeValidator(_whole)]
_Bias = Annotated[float, Field(ge=-100, le=100)]
_Stop = Annotated[str, Field(min_length=1, max_length=1000)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class StreamOptions(_Strict):
    """What a stream carries besides the answer."""

    include_usage: bool | None = None


class Sampled(_Strict):
    """The fields that choose tokens, in both of OpenAI's APIs, with those of other servers."""

    model: str | None = Field(None, description="Any name; this server has one model.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _Int | None = Field(None, ge=1, description="Clamped to what the context holds.")
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: _Int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    logit_bias: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], _Bias] | None = None
    seed: _Int | None = Field(None, ge=-(2**63), le=2**64 - 1)
    stop: _Stop | Annotated[list[_Stop], Field(max_length=64)] | None = None
    n: _Int | None = Field(None, ge=1)
    ignore_eos: bool | None = None
    user: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_harmless(cls, body: Any) -> Any:
        if not isinstance(body, Mapping):
            return body
        return {key: value for key, value in body.items() if key not in _HARMLESS}

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a count of its tokens."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def sampling(self, choice: int) -> dict[str, Any]:
        """Fields of SamplingParams for one of ``n`` choices; later ones have seeds of their own."""
        names = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty")
        found = {name: getattr(self, name) for name in (*names, "repetition_penalty")}
        found["max_tokens"] = self.max_tokens
        found["ignore_eos"] = self.ignore_eos
        found["stop"] = self.stop
        found["top_k"] = None if self.top_k is None else max(self.top_k, 0)  # -1 is off, elsewhere
        if self.logit_bias:
            found["logit_bias"] = {int(key): value for key, value in self.logit_bias.items()}
        if self.seed is not None:
            found["seed"] = (self.seed + choice) % 2**64
        return {name: value for name, value in found.items() if value is not None}


class Message(_Strict):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = Field(
        None, description='Text, or parts {"type": "text", "text": ...}.'
    )
    reasoning_content: str | None = None
    reasoning: str | None = Field(None, description="Another name of reasoning_content.")
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    def plain(self) -> dict[str, Any]:
        """As the engine's chat template reads it."""
        names = ("role", "content", "tool_calls", "tool_call_id", "name")
        found = {name: getattr(self, name) for name in names}
        found["reasoning_content"] = self.reasoning_content or self.reasoning
        return {name: value for name, value in found.items() if value is not None}


class Function(_Strict):
    """A function that the model may call."""

    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Strict):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: Function


class Named(_Strict):
    """The name of a function."""

    name: str


class NamedTool(_Strict):
    """A choice of one function."""

    type: Literal["function"]
    function: Named


class JsonSchema(_Strict):
    """A schema that the answer must match."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(_Strict):
    """What the answer must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _complete(self) -> ResponseFormat:
        if self.type == "json_schema" and (
            self.json_schema is None or self.json_schema.schema_ is None
        ):
            raise ValueError('type "json_schema" needs {"json_schema": {"schema": {...}}}')
        return self


class ChatRequest(Sampled):
    """The body of /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: _Int | None = Field(None, ge=1, description="As max_tokens.")
    logprobs: bool | None = None
    top_logprobs: _Int | None = Field(None, ge=0, le=20)
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    regex: str | None = Field(None, description="The answer must match it, all of it.")
    grammar: str | None = Field(None, description="A Lark grammar that the answer must match.")
    reasoning_effort: Effort | None = Field(None, description='"none": no thinking.')
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    sensitive: bool | None = Field(None, description="Of lily/hybrid: nothing leaves, or 4xx/5xx.")

    @model_validator(mode="after")
    def _consistent(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise BadRequest("top_logprobs needs logprobs: true", param="top_logprobs")
        if self.tool_choice not in (None, "none", "auto") and not self.tools:
            raise BadRequest("tool_choice needs tools", param="tool_choice")
        if isinstance(self.tool_choice, NamedTool):
            known = [tool.function.name for tool in self.tools or ()]
            name = self.tool_choice.function.name
            if name not in known:
                raise BadRequest(
                    f"tool_choice names {name!r}, expected one of {', '.join(known)}",
                    param="tool_choice",
                )
        for old, new in (("functions", "tools"), ("function_call", "tool_choice")):
            if (self.model_extra or {}).get(old):
                raise BadRequest(f"{old} is not supported; use {new}", param=old)
        if (self.model_extra or {}).get("modalities") not in (None, ["text"]):
            raise BadRequest('modalities other than ["text"] are not supported', param="modalities")
        return self

    def job(self, choice: int) -> ChatJob:
        """What to run for one of ``n`` choices."""
        sampling = self.sampling(choice)
        if self.max_completion_tokens is not None:
            sampling["max_tokens"] = self.max_completion_tokens
        if self.logprobs:
            sampling |= {"logprobs": True, "top_logprobs": self.top_logprobs or 0}
        variables = dict(self.chat_template_kwargs or {})
        thinking = variables.pop("enable_thinking", None)
        if not isinstance(thinking, bool | None):
            raise BadRequest(
                f"chat_template_kwargs.enable_thinking is {thinking!r}, expected true or false",
                param="chat_template_kwargs",
            )
        if self.reasoning_effort is not None:
            thinking = self.reasoning_effort not in _NO_THINKING
        if self.enable_thinking is not None:
            thinking = self.enable_thinking
        return ChatJob(
            prompt=[message.plain() for message in self.messages],
            tools=[tool.model_dump(exclude_none=True) for tool in self.tools or ()],
            tool_choice=self._choice,
            parallel_tool_calls=self.parallel_tool_calls is not False,
            constraint=self._constraint,
            sampling=sampling,
            enable_thinking=thinking,
            template_variables=variables,
        )

    @property
    def _choice(self) -> str | dict[str, str]:
        if isinstance(self.tool_choice, NamedTool):
            return {"name": self.tool_choice.function.name}
        return self.tool_choice or "auto"

    @property
    def _constraint(self) -> dict[str, Any]:
        found: dict[str, Any] = {"regex": self.regex, "grammar": self.grammar}
        wanted = self.response_format
        if wanted is not None and wanted.type == "json_object":
            found["schema"] = {"type": "object"}
        elif wanted is not None and wanted.json_schema is not None and wanted.type != "text":
            found["schema"] = wanted.json_schema.schema_
        found = {name: value for name, value in found.items() if value is not None}
        if len(found) > 1:
            raise BadRequest(
                "response_format, regex and grammar were given together, expected one of them",
                param="response_format",
            )
        return found


class CompletionRequest(Sampled):
    """The body of /v1/completions."""

    prompt: str | list[str] | list[_Int] | list[list[_Int]]
    logprobs: _Int | None = Field(None, ge=0, le=20)
    echo: bool | None = None
    best_of: _Int | None = Field(None, ge=1)
    suffix: str | None = None

    @model_validator(mode="after")
    def _possible(self) -> CompletionRequest:
        if self.suffix:
            raise BadRequest("suffix is not supported", param="suffix")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise BadRequest(f"best_of is {self.best_of}, expected n or nothing", param="best_of")
        if self.echo and self.logprobs is not None:
            raise BadRequest("echo together with logprobs is not supported", param="echo")
        return self

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        """Every prompt of the request."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise BadRequest("prompt is empty", param="prompt")
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt

    def job(self, prompt: str | list[int], choice: int) -> ChatJob:
        """What to run for one prompt and one of ``n`` choices."""
        sampling = self.sampling(choice)
        if self.logprobs is not None:
            sampling |= {"logprobs": True, "top_logprobs": self.logprobs}
        return ChatJob(prompt=prompt, sampling=sampling)
