"""What a caller asked for, checked: the prompt's tokens, how to sample, what the answer must be.

This file owns the difference between the three kinds of prompt, and the request that a generation
works on. It knows no session.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from lily.chat import Prompt
from lily.errors import ContextFull, InvalidInput
from lily.sampling import SamplingParams
from lily.toolcalls import Tool

if TYPE_CHECKING:
    from lily.structured import Constraint

Message: TypeAlias = Mapping[str, Any]
PromptLike: TypeAlias = "str | Sequence[Message] | Sequence[int]"

Progress = Callable[[int, int], None]
"""Called with (tokens done, tokens to do) while a prompt is computed."""


@dataclass(frozen=True)
class Request:
    """What to generate.

    Attributes:
        prompt: checked: at least one token, all inside the vocabulary.
        params: with a seed, if a random draw can happen.
        limit: most tokens to generate, at least 1; the context's room is already in it.
        chat: whether thinking is told apart from the answer.
        tools: whose calls are told apart from the text; empty if none may be called.
        parallel_tool_calls: whether the answer may go on after its first call.
        constraint: what the answer after the thinking must be, if that is laid down.
    """

    prompt: Prompt
    params: SamplingParams
    limit: int
    chat: bool
    tools: tuple[Tool, ...] = ()
    parallel_tool_calls: bool = True
    constraint: Constraint | None = None


def is_messages(prompt: Any) -> bool:
    """Whether ``prompt`` is a list of messages; a list that is empty or odd is judged as ids."""
    return isinstance(prompt, Sequence) and bool(prompt) and isinstance(prompt[0], Mapping)


def checked_ids(token_ids: Any, rows: int) -> list[int]:
    """Token ids as Python integers, all of them rows of the model's embedding."""
    if not isinstance(token_ids, Sequence) and not hasattr(token_ids, "tolist"):
        raise InvalidInput(
            f"the prompt is {type(token_ids).__name__}, expected a string, messages or token ids"
        )
    ids = list(token_ids.tolist() if hasattr(token_ids, "tolist") else token_ids)
    for token_id in ids:
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise InvalidInput(f"the prompt holds {token_id!r}, expected messages or token ids")
        if not 0 <= token_id < rows:
            raise InvalidInput(f"token id {token_id} is outside the vocabulary, 0 to {rows - 1}")
    return ids


def checked_request(
    prompt: Prompt,
    params: SamplingParams,
    *,
    rows: int,
    context: int,
    chat: bool,
    tools: tuple[Tool, ...] = (),
    parallel_tool_calls: bool = True,
    constraint: Constraint | None = None,
) -> Request:
    """The request, with a seed and within the context's room.

    Raises ContextFull if the prompt leaves no room, InvalidInput for a bias of an unknown token.
    """
    used = len(prompt.token_ids)
    if used >= context:
        raise ContextFull(
            f"the prompt has {used:,} tokens and the context holds {context:,}; "
            "at least one must be left for the answer"
        )
    checked_ids(list(params.logit_bias), rows)
    if params.seed is None and params.temperature > 0:
        params = params.replace(seed=secrets.randbits(64))
    limit = min(params.max_tokens or context, context - used)
    return Request(prompt, params, limit, chat, tools, parallel_tool_calls, constraint)
