"""What a generation gives back: Completion, Chunk, Score and their parts.

This file owns plain data and how it shows itself in a shell and in a notebook. It knows no engine.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled", "tool_calls"]


@dataclass(frozen=True)
class ToolCall:
    """A call of a function that the caller declared.

    Attributes:
        id: made here; a tool's result names it.
        name: one of the declared functions.
        arguments: a JSON object as text.
        complete: whether the model wrote the call to its end. If not, ``arguments`` is what there
            is of it, not closed, and nobody should run it.
    """

    id: str
    name: str
    arguments: str
    complete: bool = True


@dataclass(frozen=True)
class ToolCallDelta:
    """More of a call.

    Attributes:
        index: which call of the answer, from 0.
        id: in the first delta of a call; None in the others.
        name: the same.
        arguments: more of the JSON text; all of a call's deltas together are its arguments.
    """

    index: int
    id: str | None
    name: str | None
    arguments: str


@dataclass(frozen=True)
class TokenLogprob:
    """A token with its log-probability (natural logarithm) under the model's own distribution.

    Attributes:
        text: the token alone; a part of a character shows as U+FFFD, ``bytes`` is exact.
        top: the likeliest tokens at this place, best first; empty unless asked for.
    """

    token_id: int
    text: str
    bytes: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Usage:
    """Counts of tokens.

    Attributes:
        prompt_tokens: the whole prompt, cached or not.
        completion_tokens: all that were generated, the end token and stop strings too.
        cached_tokens: those of the prompt that were not computed again.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Timings:
    """Seconds of wall time, by phase.

    Attributes:
        prefill_s: computing the prompt.
        decode_s: from the first token to the end.
        time_to_first_token_s: from the request, waiting for a free session included.
        prefill_tokens: tokens computed in ``prefill_s`` (the cached ones are not).
        decode_tokens: tokens after the first.
    """

    prefill_s: float
    decode_s: float
    time_to_first_token_s: float
    prefill_tokens: int
    decode_tokens: int

    @property
    def prefill_tokens_per_s(self) -> float:
        """Speed of the prompt; 0 if nothing had to be computed."""
        return self.prefill_tokens / self.prefill_s if self.prefill_s > 0 else 0.0

    @property
    def decode_tokens_per_s(self) -> float:
        """Speed of the answer; 0 if it has less than two tokens."""
        return self.decode_tokens / self.decode_s if self.decode_s > 0 else 0.0


@dataclass(frozen=True, repr=False)
class Completion:
    """A finished answer.

    Attributes:
        text: the answer; for a chat without the thinking, for a raw prompt everything.
        reasoning: the thinking of a chat answer; empty if there was none.
        token_ids: every generated token, the end token too.
        finish_reason: "stop" (end token or stop string), "tool_calls" (the model ended its answer,
            and called something), "length" (max_tokens or the context's end) or "cancelled".
        stop: the stop string that was met, if one was.
        logprobs: one entry for each token, if they were asked for.
        seed: what the random draws were seeded with; None if there were none.
        tool_calls: calls of the declared tools; none of their text is in ``text``.
        cut: the beginning of a call that the answer ended in before its name was known; it is
            neither text nor a call.
    """

    text: str
    reasoning: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop: str | None
    usage: Usage
    timings: Timings
    logprobs: tuple[TokenLogprob, ...] | None
    seed: int | None
    tool_calls: tuple[ToolCall, ...] = ()
    cut: str = ""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        short = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        calls = "".join(f", {call.name}()" for call in self.tool_calls)
        tokens = f"{self.usage.completion_tokens} tokens"
        return f"Completion({short!r}{calls}, {tokens}, {self.finish_reason})"

    @property
    def speed(self) -> str:
        """One line for people: counts and tokens per second."""
        usage, timings = self.usage, self.timings
        cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
        prefill = f"{timings.prefill_tokens_per_s:,.0f} tok/s"
        decode = f"{timings.decode_tokens_per_s:,.1f} tok/s"
        return (
            f"prompt {usage.prompt_tokens:,} tokens{cached}, {prefill} · "
            f"answer {usage.completion_tokens:,} tokens, {decode} · {self.finish_reason}"
        )

    def _repr_html_(self) -> str:
        # A model can write <script>; a notebook must show it, not run it.
        block = '<div style="white-space:pre-wrap{}">{}</div>'
        parts = [block.format("", html.escape(self.text))]
        if self.reasoning.strip():
            thought = block.format(";opacity:0.6", html.escape(self.reasoning.strip()))
            parts.insert(0, f"<details><summary>thinking</summary>{thought}</details>")
        for call in self.tool_calls:
            parts.append(block.format("", html.escape(f"{call.name}({call.arguments})")))
        parts.append(block.format(";opacity:0.6;font-size:0.85em", html.escape(self.speed)))
        return "".join(parts)


@dataclass(frozen=True, repr=False)
class Chunk:
    """A piece of a running answer.

    Attributes:
        text: more of the answer; always whole characters, never a part of a stop string.
        reasoning: more of the thinking.
        token_ids: the tokens taken since the last chunk.
        logprobs: their log-probabilities, if they were asked for.
        completion: the whole answer, in the last chunk; None before.
        tool_calls: more of the calls.
    """

    text: str = ""
    reasoning: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    completion: Completion | None = None
    tool_calls: tuple[ToolCallDelta, ...] = ()

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the answer ended, in the last chunk; None before."""
        return self.completion.finish_reason if self.completion else None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        shown = f"reasoning={self.reasoning!r}" if self.reasoning else repr(self.text)
        return f"Chunk({shown}{', ' + self.finish_reason if self.finish_reason else ''})"


@dataclass(frozen=True, repr=False)
class Score:
    """How likely a text is.

    Attributes:
        token_ids: the n tokens of the text.
        logprobs: log-probability (natural logarithm) of each token after the first, n - 1 of them.
        argmax: the token that the model would have chosen at each of those places.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    argmax: tuple[int, ...]

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability; infinite where it overflows."""
        mean = -math.fsum(self.logprobs) / len(self.logprobs)
        return math.exp(mean) if mean < 700 else math.inf

    def __repr__(self) -> str:
        return f"Score({len(self.token_ids)} tokens, perplexity {self.perplexity:.4g})"
