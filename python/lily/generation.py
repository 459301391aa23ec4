"""One answer, token by token.

This file owns the loop between a session and the text: prefill, choosing tokens, when to stop, and
what is shown when. It knows no pool, no files and no templates; whoever calls it lends a session.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import numpy as np

from lily.answer import AnswerText
from lily.completion import (
    Chunk,
    Completion,
    FinishReason,
    Timings,
    TokenLogprob,
    Usage,
)
from lily.errors import Cancelled
from lily.request import Progress, Request
from lily.sampling import draw, edit_logits
from lily.structured import Constraint
from lily.tokenizer import Tokenizer

if TYPE_CHECKING:
    from lily import _native


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
        self._constraint = request.constraint
        self._own_end = False  # whether the model itself ended its answer
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
        with self._constraint or contextlib.nullcontext():
            yield from self._chunks(session, cancel, progress)

    def _chunks(
        self, session: _native.Session, cancel: _native.Cancel, progress: Progress | None
    ) -> Iterator[Chunk]:
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
        self._text.finish(ended=self._own_end)
        if self._own_end and any(call.complete for call in self._text.calls):
            self._reason = "tool_calls"
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
            tool_calls=self._text.calls,
            cut=self._text.cut,
        )
        return dataclasses.replace(rest, completion=completion)

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
        if self._constraint is None:
            return self._choose_freely(session, sampled)
        if not self._text.thinking:
            return self._choose_allowed(session, sampled, self._constraint)
        token_id = self._choose_freely(session, sampled)
        # The answer that was laid down is still to come, so this is the end of thinking only.
        end_think = self._constraint.end_think
        return end_think if token_id in self._end_ids and end_think is not None else token_id

    def _choose_freely(self, session: _native.Session, sampled: _native.Sampled) -> int:
        if sampled.exact and not self._params.edits_logits:
            return sampled.token_id
        row = session.logits()
        if self._params.edits_logits:
            row = edit_logits(row, self._params, self._prompt_ids, self._token_ids)
        return draw(row, self._params, len(self._prompt_ids) + len(self._token_ids))

    def _choose_allowed(
        self, session: _native.Session, sampled: _native.Sampled, constraint: Constraint
    ) -> int:
        allowed = constraint.allowed(
            after_thinking=self._text.after_thinking, may_end=not self._params.ignore_eos
        )
        greedy = self._params.temperature == 0 and not self._params.edits_logits
        if greedy and sampled.exact and allowed[sampled.token_id]:
            return sampled.token_id
        row = session.logits()
        if self._params.edits_logits:
            row = edit_logits(row, self._params, self._prompt_ids, self._token_ids)
        ids = np.flatnonzero(allowed)
        position = len(self._prompt_ids) + len(self._token_ids)
        return int(ids[draw(row[ids], self._params, position)])

    def _accept(self, session: _native.Session, sampled: _native.Sampled, token_id: int) -> None:
        self._token_ids.append(token_id)
        if self._params.logprobs:
            self._logprobs.append(self._logprob(session, sampled.logsumexp, token_id))
        if self._constraint is not None and not self._text.thinking:
            self._constraint.accept(token_id)
        if token_id not in self._end_ids and not (
            self._constraint and self._constraint.is_end(token_id)
        ):
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
        complete = self._constraint is not None and self._constraint.complete
        self._own_end = token_id in self._end_ids or complete or self._text.called
        if self._own_end or self._text.stop_hit is not None:
            self._reason = "stop"
        elif len(self._token_ids) >= self._request.limit:
            self._reason = "length"
        else:
            return False
        return True

    def _chunk(self) -> Chunk:
        answer, reasoning, calls = self._text.take()
        begin, self._chunked = self._chunked, len(self._token_ids)
        return Chunk(
            answer,
            reasoning,
            tuple(self._token_ids[begin:]),
            tuple(self._logprobs[begin:]),
            tool_calls=calls,
        )


def whole(chunks: Generator[Chunk, None, None]) -> Completion:
    """Run an answer to its end."""
    completion: Completion | None = None
    with contextlib.closing(chunks):  # Ctrl-C between two chunks must free the session too
        for chunk in chunks:
            completion = chunk.completion
    assert completion is not None, "the last chunk always carries the completion"
    return completion
