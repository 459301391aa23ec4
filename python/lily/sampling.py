"""What sampling means, in NumPy.

This file owns the meaning of every sampling parameter; the native sampler does the same on the
best 64 candidates and says when those are not enough. It knows rows of logits, not models,
tokenizers or sessions.

The order: repetition, presence and frequency penalties, ``logit_bias``, the caller's processors;
then arg-max (temperature 0), or temperature, top-k, top-p, min-p and a draw.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lily.errors import DeviceError, InvalidInput

LogitsProcessor = Callable[[Sequence[int], NDArray[np.float32]], NDArray[np.float32]]
"""Gets all tokens so far and the logits ``[vocab]``; returns logits of the same shape."""

MAX_TOP_LOGPROBS = 20


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen, and when to stop.

    Attributes:
        temperature: 0 takes the likeliest token; 1 is the model's own distribution.
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: keep the smallest set of likeliest tokens with at least this share of what top_k
            kept; 1 keeps all.
        min_p: drop tokens less likely than this share of the likeliest one; 0 keeps all.
        repetition_penalty: divides positive (multiplies negative) logits of tokens already in
            the prompt or the answer; 1 is off.
        presence_penalty: subtracted once from the logits of tokens already in the answer.
        frequency_penalty: the same, once for each occurrence.
        logit_bias: token id to a number added to its logit.
        seed: 0 to 2**64 - 1; the same seed gives the same text on the same device. None: random.
        max_tokens: most tokens to generate; None: as many as the context holds.
        stop: strings that end the answer and are not part of it.
        logprobs: report the log-probability of each token, under the model's own distribution.
        top_logprobs: also report this many likeliest tokens at each place, at most 20.
        ignore_eos: go on past the model's end-of-answer token.
        logits_processors: called in order on every row of logits.

    Raises InvalidInput for a value out of range.

    Example:
        >>> SamplingParams(temperature=0.7, top_p=0.8, seed=1, stop=["\\n\\n"]).top_p
        0.8
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    logprobs: bool = False
    top_logprobs: int = 0
    ignore_eos: bool = False
    logits_processors: Sequence[LogitsProcessor] = ()

    def __post_init__(self) -> None:
        _require_number("temperature", self.temperature, 0.0, math.inf)
        _require_int("top_k", self.top_k, 0, None)
        _require_number("top_p", self.top_p, 0.0, 1.0)
        _require_number("min_p", self.min_p, 0.0, 1.0)
        _require_number("repetition_penalty", self.repetition_penalty, 0.0, math.inf)
        if self.repetition_penalty == 0:
            raise InvalidInput("repetition_penalty is 0, expected more than 0 (1 is off)")
        _require_number("presence_penalty", self.presence_penalty, -math.inf, math.inf)
        _require_number("frequency_penalty", self.frequency_penalty, -math.inf, math.inf)
        if self.seed is not None:
            _require_int("seed", self.seed, 0, 2**64 - 1)
        if self.max_tokens is not None:
            _require_int("max_tokens", self.max_tokens, 1, None)
        _require_int("top_logprobs", self.top_logprobs, 0, MAX_TOP_LOGPROBS)
        if self.top_logprobs and not self.logprobs:
            raise InvalidInput(f"top_logprobs is {self.top_logprobs} but logprobs is False")
        for name in ("logprobs", "ignore_eos"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} is {getattr(self, name)!r}, expected True or False")
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "logit_bias", _logit_bias(self.logit_bias))
        object.__setattr__(self, "logits_processors", tuple(self.logits_processors))
        if not all(map(callable, self.logits_processors)):
            raise InvalidInput("logits_processors holds something that cannot be called")

    @classmethod
    def from_generation_config(cls, config: Mapping[str, Any]) -> SamplingParams:
        """The defaults that a checkpoint asks for in ``generation_config.json``."""
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        found = {name: config[name] for name in names if config.get(name) is not None}
        if config.get("do_sample") is False:
            found["temperature"] = 0.0
        return cls(**found)

    def replace(self, **changes: Any) -> SamplingParams:
        """A copy with the given fields changed; InvalidInput for an unknown name."""
        known = {item.name for item in dataclasses.fields(self)}
        unknown = sorted(set(changes) - known)
        if unknown:
            raise InvalidInput(
                f"unknown sampling parameter {unknown[0]!r}; known are {', '.join(sorted(known))}"
            )
        return dataclasses.replace(self, **changes)

    @property
    def edits_logits(self) -> bool:
        """Whether the row of logits is changed before the draw, so that Python must draw."""
        return bool(
            self.logits_processors
            or self.logit_bias
            or self.repetition_penalty != 1
            or self.presence_penalty
            or self.frequency_penalty
        )


def edit_logits(
    logits: NDArray[np.float32],
    params: SamplingParams,
    prompt: NDArray[np.int64],
    answer: Sequence[int],
) -> NDArray[np.float32]:
    """Apply penalties, bias and processors to one row ``[vocab]``; ``logits`` is not changed.

    ``prompt`` and ``answer`` are the token ids so far (the prompt as an array, because a long one
    would be dear to convert for every token). Raises InvalidInput if a processor returns
    another shape or a bias names a token outside the vocabulary.
    """
    row = logits.astype(np.float32, copy=True)
    if params.repetition_penalty != 1:
        seen = np.zeros(len(row), np.bool_)
        seen[prompt] = True
        seen[answer] = True
        factor = np.float32(params.repetition_penalty)
        row[seen] = np.where(row[seen] > 0, row[seen] / factor, row[seen] * factor)
    if answer and (params.presence_penalty or params.frequency_penalty):
        spoken, counts = np.unique(np.asarray(answer, np.int64), return_counts=True)
        penalty = params.presence_penalty + params.frequency_penalty * counts
        row[spoken] -= penalty.astype(np.float32)
    for token_id, bias in params.logit_bias.items():
        if token_id >= len(row):
            raise InvalidInput(f"logit_bias names token {token_id}, the vocabulary has {len(row)}")
        row[token_id] += np.float32(bias)
    for processor in params.logits_processors:
        row = np.asarray(processor([*prompt.tolist(), *answer], row), dtype=np.float32)
        if row.shape != logits.shape:
            raise InvalidInput(
                f"a logits processor returned shape {row.shape}, expected {logits.shape}"
            )
    return row


def draw(logits: NDArray[np.float32], params: SamplingParams, position: int) -> int:
    """Choose one token from a row of logits ``[vocab]``.

    ``position`` is the index, in the session's timeline, of the token being drawn; with the seed it
    decides the draw. Ties go to the lower id. Raises DeviceError for NaN, InvalidInput if every
    token is excluded, or if no seed is set for a random draw.

    Example:
        >>> draw(np.array([0.0, 3.0, 1.0], np.float32), SamplingParams(temperature=0), 0)
        1
    """
    best = int(np.argmax(logits))  # NaN wins arg-max, so one look at the winner finds any
    top = float(logits[best])
    if math.isnan(top):
        raise DeviceError(f"the logits hold NaN at token {best}")
    if top == -math.inf:
        raise InvalidInput("every token is excluded by the logits processors or logit_bias")
    if params.temperature == 0 or top == math.inf:
        return best
    if params.seed is None:
        raise InvalidInput("a random draw needs a seed")
    uniform = uniform_at(params.seed, position)
    limit = min(params.top_k or len(logits), len(logits))
    with np.errstate(over="ignore"):  # at a tiny temperature all but the best become -inf
        scaled = (logits.astype(np.float64) - top) / params.temperature
    total = float(np.exp(scaled).sum()) if limit == len(logits) else 0.0
    # A full vocabulary is dear to sort and nearly all draws fall among its best few tokens.
    size = params.top_k or 64
    while True:
        order = _best(logits, size)[:limit]
        weights = np.exp(scaled[order])
        place = _draw_among(weights, total, params, uniform, whole=len(order) == limit)
        if place is not None:
            return int(order[place])
        size *= 16


def _draw_among(
    weights: NDArray[np.float64],
    total: float,
    params: SamplingParams,
    uniform: float,
    *,
    whole: bool,
) -> int | None:
    """Draw among the best tokens by their weights; None if it falls, or may fall, beyond them.

    ``whole``: these are all the tokens that top-k left. If not, ``total`` is the weight of all.
    """
    cumulative = np.cumsum(weights)
    if whole:
        total = float(cumulative[-1])
    # Each filter keeps some number of the best tokens; those that end here are known.
    ends = [len(weights)] if whole else []
    if params.top_p < 1:
        ends += [end + 1 for end in _first(cumulative >= params.top_p * total)]
    if params.min_p > 0:
        ends += _first(weights < params.min_p)
    if ends:
        cumulative = cumulative[: min(ends)]
        total = float(cumulative[-1])
    elif params.top_p < 1 or params.min_p > 0:
        return None
    return next(iter(_first(cumulative > uniform * total)), None)


def _first(condition: NDArray[np.bool_]) -> list[int]:
    """The first place where ``condition`` holds, as a list that is empty if it nowhere does."""
    place = int(np.argmax(condition))
    return [place] if condition[place] else []


def _best(logits: NDArray[np.float32], size: int) -> NDArray[np.int64]:
    """Ids of at least the ``size`` highest logits, best first, ties by lower id."""
    if size < len(logits):
        threshold = np.partition(logits, len(logits) - size)[len(logits) - size]
        ids = np.flatnonzero(logits >= threshold)
    else:
        ids = np.arange(len(logits))
    return ids[np.argsort(-logits[ids], kind="stable")]


def uniform_at(seed: int, position: int) -> float:
    """The random number in [0, 1) that belongs to a seed and a position: 24 bits of Philox."""
    counter = (position & 0xFFFFFFFF, position >> 32, 0, 0)
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return (words[0] >> 8) * 2.0**-24


def philox4x32(
    counter: tuple[int, int, int, int], key: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Ten rounds of Philox4x32 (Salmon et al. 2011), on 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        low, high = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (
            (high >> 32) ^ c1 ^ k0,
            high & 0xFFFFFFFF,
            (low >> 32) ^ c3 ^ k1,
            low & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def _require_number(name: str, value: Any, low: float, high: float) -> None:
    valid = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not valid or not math.isfinite(value) or not low <= value <= high:
        span = "a finite number" if low == -math.inf else f"{low:g} or more"
        expected = f"{low:g} to {high:g}" if math.isfinite(high) else span
        raise InvalidInput(f"{name} is {value!r}, expected {expected}")


def _require_int(name: str, value: Any, low: int, high: int | None) -> None:
    valid = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not valid or value < low or (high is not None and value > high):
        expected = f"{low} or more" if high is None else f"{low} to {high}"
        raise InvalidInput(f"{name} is {value!r}, expected an integer, {expected}")


def _stop_strings(stop: Any) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop) if stop is not None else ()
    for text in strings:
        if not isinstance(text, str) or not text:
            raise InvalidInput(f"stop holds {text!r}, expected strings that are not empty")
    return strings


def _logit_bias(bias: Any) -> dict[int, float]:
    if not isinstance(bias, Mapping):
        raise InvalidInput(f"logit_bias is {bias!r}, expected token ids mapped to numbers")
    found: dict[int, float] = {}
    for token_id, value in bias.items():
        _require_int("a token id in logit_bias", token_id, 0, None)
        _require_number(f"logit_bias of token {token_id}", value, -math.inf, math.inf)
        found[int(token_id)] = float(value)
    return found
