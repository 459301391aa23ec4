"""Parts of responses that OpenAI's APIs share: usage, timings, log-probabilities.

This file owns their field names, and which tokens count as the answer. It knows no request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from lily.completion import Chunk, Completion, TokenLogprob

_LEAST = -9999.0  # JSON has no minus infinity


def usage(completions: Sequence[Completion], reasoning_tokens: int = 0) -> dict[str, Any]:
    """Counts over all choices of one prompt, which counts once."""
    prompt = completions[0].usage.prompt_tokens
    generated = sum(done.usage.completion_tokens for done in completions)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": completions[0].usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
    }


def timings(completion: Completion) -> dict[str, float]:
    """Speed of one answer, with llama.cpp's names, which several clients show."""
    took = completion.timings
    return {
        "cache_n": completion.usage.cached_tokens,
        "prompt_n": took.prefill_tokens,
        "prompt_ms": round(took.prefill_s * 1e3, 3),
        "prompt_per_second": round(took.prefill_tokens_per_s, 3),
        "predicted_n": completion.usage.completion_tokens,
        "predicted_ms": round(took.decode_s * 1e3, 3),
        "predicted_per_second": round(took.decode_tokens_per_s, 3),
        "time_to_first_token_ms": round(took.time_to_first_token_s * 1e3, 3),
    }


def number(logprob: float) -> float:
    """A log-probability as JSON can say it."""
    return logprob if math.isfinite(logprob) else _LEAST


class AnswerTokens:
    """Tells the tokens of the answer from those of the thinking, chunk by chunk.

    Of a chat's tokens, those up to ``</think>`` are thinking, the newlines behind it are neither,
    and so is the end token.
    """

    def __init__(self) -> None:
        self.reasoning_tokens = 0
        self._begun = False

    def take(self, chunk: Chunk) -> list[TokenLogprob]:
        """The log-probabilities in ``chunk`` that belong to the answer."""
        if chunk.reasoning:
            self.reasoning_tokens += len(chunk.token_ids)
            if not chunk.text:
                return []
        return list(self._answer(chunk))

    def _answer(self, chunk: Chunk) -> Iterator[TokenLogprob]:
        done = chunk.completion
        ended = done is not None and done.finish_reason != "length" and done.stop is None
        tokens = list(chunk.logprobs)
        if ended and tokens and tokens[-1].bytes.startswith(b"<|"):
            tokens.pop()
        for place, token in enumerate(tokens):
            if token.bytes == b"</think>":
                tokens = tokens[place + 1 :]
                break
        for token in tokens:
            self._begun = self._begun or bool(token.bytes.strip(b"\n"))
            if self._begun:
                yield token


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    """``logprobs`` of a chat choice."""

    def entry(token: TokenLogprob) -> dict[str, Any]:
        return {
            "token": token.text,
            "logprob": number(token.logprob),
            "bytes": list(token.bytes),
        }

    content = [
        {**entry(token), "top_logprobs": [entry(top) for top in token.top]} for token in tokens
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
    """``logprobs`` of a text completion whose text begins at ``offset``."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [number(token.logprob) for token in tokens],
        "top_logprobs": [{top.text: number(top.logprob) for top in token.top} for token in tokens],
        "text_offset": offsets,
    }
