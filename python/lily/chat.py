"""Messages to token ids, through the checkpoint's own chat template.

This file owns the border between the template's words and the caller's. Only the template may
write control tokens: before rendering, caller's text gets an invisible mark inside everything that
could begin or end a control token; the rendered text is cut at the control tokens that are still
whole, and the marks are taken out of the pieces, which are encoded as plain text. The text is the
same as without marks.

Two consequences. A user message that begins with ``<tool_response>`` is a user message, because
templates that look for that tag do not find it. In an assistant message, ``<think>`` and
``<tool_call>`` (added tokens that are not special) stay what they are: they are the model's own
words, which templates split at, and an answer put back into the history must become the tokens
that the model wrote. It knows no model and no session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lily.errors import InvalidInput, ModelError
from lily.template import Template
from lily.tokenizer import Tokenizer, read_json

MESSAGE_START = "<|im_start|>"
THINK, END_THINK = "<think>", "</think>"
_ROLES = ("system", "developer", "user", "assistant", "tool")
_NAMED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class Prompt:
    """A prompt as the engine takes it.

    Attributes:
        token_ids: the whole prompt.
        boundaries: positions at which a message begins and a snapshot is worth keeping.
        thinking: whether the answer begins inside ``<think>``.
    """

    token_ids: list[int]
    boundaries: tuple[int, ...] = ()
    thinking: bool = False


class ChatTemplate:
    """The chat template of the checkpoint in ``folder``.

    Raises ModelError if its files cannot be read or the template has a syntax error. A checkpoint
    without template loads; ``render`` then says what to do instead.

    Example:
        >>> chat = ChatTemplate(folder, tokenizer)                          # doctest: +SKIP
        >>> chat.render([{"role": "user", "content": "Hi"}]).token_ids      # doctest: +SKIP
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        config = read_json(folder / "tokenizer_config.json")
        sources = _template_sources(folder, config)
        self._templates = {name: Template(source) for name, source in sources.items()}
        self._named_tokens = {
            name: token["content"] if isinstance(token, dict) else token
            for name in _NAMED_TOKENS
            if (token := config.get(name)) is not None
        }

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Token ids of a conversation, ready for the assistant's next answer.

        ``messages`` are dicts with ``role`` (system, developer, user, assistant, tool) and
        ``content`` (a string, or parts ``{"type": "text", "text": ...}``). ``tools`` are JSON
        schemas of functions. ``enable_thinking`` None leaves the template's default;
        ``variables`` are further names for the template, such as ``preserve_thinking``.

        Raises InvalidInput for messages that the template refuses, ModelError if it fails.
        """
        text, mark = self._render_marked(messages, tools, enable_thinking, variables)
        token_ids: list[int] = []
        boundaries: list[int] = []
        thinking = False
        for piece, control_id in self._tokenizer.split_controls(text):
            if control_id is None:
                token_ids += self._tokenizer.encode(piece.replace(mark, ""))
                continue
            if piece == MESSAGE_START:
                thinking = False
                if token_ids:
                    boundaries.append(len(token_ids))
            elif piece in (THINK, END_THINK):
                thinking = piece == THINK
            token_ids.append(control_id)
        return Prompt(token_ids, _worth_keeping(boundaries), thinking)

    def render_text(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The text that ``render`` encodes, for people; takes the same arguments."""
        defaults = {"tools": None, "enable_thinking": None, "variables": None}
        text, mark = self._render_marked(messages, **{**defaults, **options})
        return text.replace(mark, "")

    def _render_marked(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        enable_thinking: bool | None,
        variables: Mapping[str, Any] | None,
    ) -> tuple[str, str]:
        template = self._templates.get("tool_use" if tools else "default")
        template = template or self._templates.get("default")
        if template is None:
            raise InvalidInput("this checkpoint has no chat template; give the prompt as a string")
        caller: dict[str, Any] = dict(variables or {})
        taken = {"messages", "tools", "add_generation_prompt"} & set(caller)
        if taken:
            raise InvalidInput(f"{sorted(taken)[0]} cannot be given as a template variable")
        if enable_thinking is not None:
            caller["enable_thinking"] = enable_thinking
        caller["tools"] = _checked_tools(tools)
        caller["messages"] = normalised(messages)
        mark = _unused_char(caller)
        marker = _Marker(self._tokenizer, mark)
        try:
            marked = {name: marker.mark(value) for name, value in caller.items()}
        except RecursionError as error:
            raise InvalidInput("messages or tools nest too deep") from error
        marked["messages"] = [marker.mark_message(message) for message in caller["messages"]]
        marked["add_generation_prompt"] = True
        return template.render({**self._named_tokens, **marked}), mark


def _worth_keeping(boundaries: list[int]) -> tuple[int, ...]:
    """The places from which later prompts part: behind the preamble, and before the last messages.

    Each costs a cut in the prefill and a snapshot, so a long history must not bring one for each
    of its messages.
    """
    return tuple(boundaries[:1] + boundaries[1:][-3:])


class _Marker:
    """Puts ``mark`` where the caller's text could begin or end a control token."""

    def __init__(self, tokenizer: Tokenizer, mark: str) -> None:
        self._table = str.maketrans(
            {token[-1]: mark + token[-1] for token in tokenizer.control_ids}
            | {token[0]: token[0] + mark for token in tokenizer.control_ids}
        )
        longest_first = sorted(tokenizer.special_tokens, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._mark = mark

    def mark(self, value: Any) -> Any:
        """``value`` with every string in it marked, keys of dicts too."""
        if isinstance(value, str):
            return value.translate(self._table)
        if isinstance(value, Mapping):
            return {self.mark(key): self.mark(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mark(item) for item in value]
        return value

    def mark_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        own_words = ("content", "reasoning_content") if message["role"] == "assistant" else ()
        return {
            key: self._mark_special(value) if key in own_words else self.mark(value)
            for key, value in message.items()
        }

    def _mark_special(self, text: Any) -> Any:
        if not isinstance(text, str):
            return self.mark(text)
        return self._special.sub(lambda found: found[0][0] + self._mark + found[0][1:], text)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _unused_char(value: Any) -> str:
    """A private-use character that occurs nowhere in ``value``."""
    try:
        strings = list(_strings(value))
    except RecursionError as error:
        raise InvalidInput("messages or tools contain themselves or nest too deep") from error
    for code in range(0xF0000, 0xFFFFE):
        if not any(chr(code) in text for text in strings):
            return chr(code)
    raise InvalidInput("the messages use every private-use character of Unicode plane 15")


def normalised(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as templates expect them.

    System and developer messages are joined, in order, at the front; lists of text parts become
    one string; the arguments of tool calls, which clients send as JSON text, become dicts.
    Raises InvalidInput that names the message by its index.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidInput(f"messages is {type(messages).__name__}, expected a list of dicts")
    if not messages:
        raise InvalidInput("messages is empty")
    system: list[str] = []
    others: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise InvalidInput(f"{where} is {type(message).__name__}, expected a dict")
        role = message.get("role")
        if role not in _ROLES:
            raise InvalidInput(f"{where} has role {role!r}, expected one of {', '.join(_ROLES)}")
        clean = {key: value for key, value in message.items() if value is not None}
        clean["content"] = _content(message.get("content"), where, role)
        if role in ("system", "developer"):
            system.append(clean["content"])
            continue
        if "tool_calls" in clean:
            clean["tool_calls"] = _tool_calls(clean["tool_calls"], where)
        others.append(clean)
    if system:
        others.insert(0, {"role": "system", "content": "\n\n".join(system)})
    return others


def _content(content: Any, where: str, role: str) -> str:
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return ""
    if not isinstance(content, (list, tuple)):
        found = "no content" if content is None else f"content {type(content).__name__}"
        raise InvalidInput(f"{where} has {found}, expected a string or a list of text parts")
    texts = []
    for part in content:
        kind = part.get("type", "text") if isinstance(part, Mapping) else type(part).__name__
        if kind != "text":
            raise InvalidInput(f"{where} has a part of type '{kind}'; this engine reads text only")
        if not isinstance(part.get("text"), str):
            raise InvalidInput(f"{where} has a text part without text")
        texts.append(part["text"])
    return "".join(texts)


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, (list, tuple)):
        raise InvalidInput(f"{where}.tool_calls is {type(calls).__name__}, expected a list")
    found = []
    for call in calls:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InvalidInput(f"{where}.tool_calls holds a call without a function name")
        arguments = function.get("arguments") or {}
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError) as error:
                raise InvalidInput(
                    f"{where}: the arguments of {function['name']} are not JSON: {error}"
                ) from error
        if not isinstance(arguments, Mapping):
            raise InvalidInput(f"{where}: the arguments of {function['name']} are not an object")
        found.append({**call, "function": {**function, "arguments": arguments}})
    return found


def _checked_tools(tools: Any) -> list[Mapping[str, Any]] | None:
    if tools is None:
        return None
    if not isinstance(tools, (list, tuple)) or not all(isinstance(t, Mapping) for t in tools):
        raise InvalidInput("tools is not a list of dicts (JSON schemas of functions)")
    return list(tools) or None


def _template_sources(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Template name to source; files of their own come before ``tokenizer_config.json``."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return {"default": file.read_text("utf-8")}
    own = read_json(folder / "chat_template.json").get("chat_template")
    source = own if own is not None else config.get("chat_template")
    if source is None:
        return {}
    if isinstance(source, str):
        return {"default": source}
    try:
        return {str(entry["name"]): str(entry["template"]) for entry in source}
    except (TypeError, KeyError) as error:
        raise ModelError(f"{folder}: chat_template is neither a string nor a list") from error
