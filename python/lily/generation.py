"""One answer, token by token.

This file owns the loop between a session and the text: prefill, choosing tokens, when to stop, and
what is shown when. It knows no pool, no files and no templates; whoever calls it lends a session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lily.chat import END_THINK, THINK, Prompt
from lily.completion import (
    Chunk,
    Completion,
    FinishReason,
    Timings,
    TokenLogprob,
    Usage,
)
from lily.errors import Cancelled
from lily.sampling import SamplingParams, draw, edit_logits
from lily.stops import StopMatcher
from lily.tokenizer import Detokenizer, Tokenizer

if TYPE_CHECKING:
    from lily import _native

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
    """

    prompt: Prompt
    params: SamplingParams
    limit: int
    chat: bool


class Generation:
    """The state of one answer. ``chunks`` runs it; ``last_chunk`` sums it up, however it ended.

    ``started`` is the ``time.perf_counter()`` of the request.
    """

    def __init__(
        self, tokenizer: Tokenizer, end_ids: frozenset[int], request: Request, started: float
    ) -> None:
        self._tokenizer = tokenizer
        self._end_ids = frozenset() if request.params.ignore_eos else end_ids
        self._request = request
        self._params = request.params
        self._prompt_ids = np.asarray(request.prompt.token_ids, np.int64)
        self._text = AnswerText(tokenizer, request)
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._chunked = 0  # tokens that chunks have told of
        self._reason: FinishReason = "cancelled"  # until the loop finds another
        self._cached = self._computed = 0
        self._started = started
        self._prefill_s = self._first_s = self._decode_s = 0.0

    def chunks(
        self, session: _native.Session, cancel: _native.Cancel, progress: Progress | None
    ) -> Iterator[Chunk]:
        """Run on ``session``. Raises Cancelled; everything so far is then in ``last_chunk``."""
        self._prefill(session, cancel, progress)
        first = time.perf_counter()
        away = 0.0  # time that the caller spends between chunks is not the engine's
        sampled = session.sampled()
        while True:
            token_id = self._choose(session, sampled)
            self._accept(session, sampled, token_id)
            if len(self._token_ids) == 1:
                first = time.perf_counter()
                self._first_s = first - self._started
            if self._ended(token_id):
                break
            if self._text.ready:
                left = time.perf_counter()
                yield self._chunk()
                away += time.perf_counter() - left
            if cancel.is_set:  # closing the engine cancels first, and that is the reason to tell
                raise Cancelled("cancelled")
            sampled = session.step(token_id, cancel=cancel)
            self._decode_s = time.perf_counter() - first - away
        session.save()

    def last_chunk(self) -> Chunk:
        """The rest of the text, and the whole Completion."""
        self._text.finish()
        rest = self._chunk()
        prompt_tokens = len(self._request.prompt.token_ids)
        completion = Completion(
            text=self._text.all_answer,
            reasoning=self._text.all_reasoning,
            token_ids=tuple(self._token_ids),
            finish_reason=self._reason,
            stop=self._text.stop_hit,
            usage=Usage(prompt_tokens, len(self._token_ids), self._cached),
            timings=Timings(
                prefill_s=self._prefill_s,
                decode_s=self._decode_s,
                time_to_first_token_s=self._first_s,
                prefill_tokens=self._computed,
                decode_tokens=max(0, len(self._token_ids) - 1),
            ),
            logprobs=tuple(self._logprobs) if self._params.logprobs else None,
            seed=self._params.seed if self._params.temperature > 0 else None,
        )
        return Chunk(rest.text, rest.reasoning, rest.token_ids, rest.logprobs, completion)

    def _prefill(
        self, session: _native.Session, cancel: _native.Cancel, progress: Progress | None
    ) -> None:
        prompt, params = self._request.prompt, self._params
        session.set_sampler(
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            seed=params.seed or 0,
        )
        begin = time.perf_counter()
        self._cached = session.prefill(
            prompt.token_ids,
            checkpoints=prompt.boundaries,
            cancel=cancel,
            # Even an empty callback lets Python see Ctrl-C after each chunk of the prompt.
            progress=progress or (lambda done, total: None),
        )
        self._prefill_s = time.perf_counter() - begin
        self._computed = len(prompt.token_ids) - self._cached

    def _choose(self, session: _native.Session, sampled: _native.Sampled) -> int:
        if sampled.exact and not self._params.edits_logits:
            return sampled.token_id
        row = session.logits()
        if self._params.edits_logits:
            row = edit_logits(row, self._params, self._prompt_ids, self._token_ids)
        return draw(row, self._params, len(self._prompt_ids) + len(self._token_ids))

    def _accept(self, session: _native.Session, sampled: _native.Sampled, token_id: int) -> None:
        self._token_ids.append(token_id)
        if self._params.logprobs:
            self._logprobs.append(self._logprob(session, sampled.logsumexp, token_id))
        if token_id not in self._end_ids:
            self._text.push(token_id)

    def _logprob(self, session: _native.Session, logsumexp: float, token_id: int) -> TokenLogprob:
        ids, logits = session.candidates()
        place = np.flatnonzero(ids == token_id)
        logit = logits[place[0]] if len(place) else session.logits()[token_id]
        top = tuple(
            self._token_logprob(int(ids[rank]), float(logits[rank]) - logsumexp)
            for rank in range(min(self._params.top_logprobs, len(ids)))
        )
        return self._token_logprob(token_id, float(logit) - logsumexp, top)

    def _token_logprob(
        self, token_id: int, logprob: float, top: tuple[TokenLogprob, ...] = ()
    ) -> TokenLogprob:
        spelled = self._tokenizer.token_bytes(token_id)
        return TokenLogprob(token_id, spelled.decode("utf-8", "replace"), spelled, logprob, top)

    def _ended(self, token_id: int) -> bool:
        """Whether the answer is over with this token; sets the reason."""
        if token_id in self._end_ids or self._text.stop_hit is not None:
            self._reason = "stop"
        elif len(self._token_ids) >= self._request.limit:
            self._reason = "length"
        else:
            return False
        return True

    def _chunk(self) -> Chunk:
        answer, reasoning = self._text.take()
        begin, self._chunked = self._chunked, len(self._token_ids)
        return Chunk(
            answer,
            reasoning,
            tuple(self._token_ids[begin:]),
            tuple(self._logprobs[begin:]),
        )


class AnswerText:
    """From tokens to what may be shown: characters whole, thinking apart, stop strings cut.

    Thinking is told by the control tokens ``<think>`` and ``</think>``, not by their spelling, so
    an answer that quotes them stays an answer. Stop strings are looked for in the answer only.
    """

    def __init__(self, tokenizer: Tokenizer, request: Request) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(request.params.stop)
        controls = tokenizer.control_ids if request.chat else {}
        self._turns = {controls[t]: t == THINK for t in (THINK, END_THINK) if t in controls}
        self._thinking = request.chat and request.prompt.thinking
        self._after_thinking = False  # newlines between </think> and the answer belong to neither
        self._answer: list[str] = []
        self._reasoning: list[str] = []
        self._taken = (0, 0)

    @property
    def stop_hit(self) -> str | None:
        """The stop string that ended the answer."""
        return self._stops.hit

    @property
    def ready(self) -> bool:
        """Whether there is text that ``take`` has not given yet."""
        return self._taken != (len(self._answer), len(self._reasoning))

    @property
    def all_answer(self) -> str:
        return "".join(self._answer)

    @property
    def all_reasoning(self) -> str:
        return "".join(self._reasoning)

    def push(self, token_id: int) -> None:
        """Take one more token."""
        turn = self._turns.get(token_id)
        if turn is None:
            self._route(self._detokenizer.push(token_id))
            return
        self._route(self._detokenizer.finish())
        self._after_thinking = self._thinking and not turn
        self._thinking = turn

    def finish(self) -> None:
        """No more tokens follow: let go of what was held back."""
        self._route(self._detokenizer.finish())
        self._show(self._answer, self._stops.finish())

    def take(self) -> tuple[str, str]:
        """Answer and thinking since the last ``take``."""
        answer, reasoning = self._taken
        self._taken = (len(self._answer), len(self._reasoning))
        return "".join(self._answer[answer:]), "".join(self._reasoning[reasoning:])

    def _route(self, text: str) -> None:
        if self._thinking:
            self._show(self._reasoning, text)
            return
        if self._after_thinking:
            text = text.lstrip("\n")
            self._after_thinking = not text
        self._show(self._answer, self._stops.push(text))

    @staticmethod
    def _show(channel: list[str], text: str) -> None:
        if text:
            channel.append(text)
