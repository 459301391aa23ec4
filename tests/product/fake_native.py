"""A stand-in for the native engine: the same contract, on a toy model of a few lines of NumPy.

The toy's logits depend on every token of the timeline, so a mixed-up or stale session gives another
text. It counts what the product code asks of it. It has no speed and no files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from lily.errors import Cancelled, ContextFull, DeviceError, InvalidInput
from lily.pool import shared_prefix
from lily.sampling import SamplingParams, draw

CHUNK = 8


def toy_logits(tokens: Sequence[int], vocab: int) -> np.ndarray:
    """A row of logits, float32 ``[vocab]``, that any change of any token changes."""
    state = 0
    for token in tokens:
        state = (state * 1_000_003 + token + 1) % 2**61
    return np.random.default_rng(state).normal(0, 3, vocab).astype(np.float32)


class FakeSampled:
    def __init__(self, token_id: int, exact: bool, logsumexp: float) -> None:
        self.token_id, self.exact, self.logsumexp = token_id, exact, logsumexp


class FakeSession:
    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.tokens: list[int] = []
        self.max_tokens = engine.max_context
        self.params = SamplingParams(temperature=0)
        self.saves: list[int] = []
        self.checkpoints: tuple[int, ...] = ()
        self.closed = False
        self.scored = 0
        self._owner: int | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    def set_sampler(self, *, temperature, top_k, top_p, min_p, seed) -> None:
        self.params = SamplingParams(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed
        )

    def prefill(self, tokens, *, checkpoints=(), cancel=None, progress=None) -> int:
        self._require_alone()
        tokens = [int(token) for token in tokens]
        if len(tokens) > self.max_tokens:
            raise ContextFull(f"{len(tokens)} tokens, context {self.max_tokens}")
        reused = min(shared_prefix(self.tokens, tokens), len(tokens) - 1)
        self.tokens = tokens[:reused]
        self.checkpoints = tuple(checkpoints)
        while len(self.tokens) < len(tokens):
            self._look(cancel)
            self.tokens += tokens[len(self.tokens) : len(self.tokens) + CHUNK]
            if progress is not None:
                progress(len(self.tokens) - reused, len(tokens) - reused)
        return reused

    def sampled(self) -> FakeSampled:
        row = self.logits()
        exact = self.params.temperature == 0 or self.engine.always_exact
        token = draw(row, self.params, self.num_tokens) if exact else int(np.argmin(row))
        return FakeSampled(token, exact, float(np.logaddexp.reduce(row.astype(np.float64))))

    def step(self, token_id: int, *, cancel=None) -> FakeSampled:
        self._require_alone()
        self._look(cancel)
        if len(self.tokens) >= self.max_tokens:
            raise ContextFull("full")
        if self.engine.fail_at == len(self.tokens):
            raise DeviceError("toy failure")
        time.sleep(self.engine.step_s)
        self.tokens.append(token_id)
        return self.sampled()

    def logits(self) -> np.ndarray:
        script = self.engine.script
        if script is not None and len(self.tokens) >= self.engine.script_from:
            place = len(self.tokens) - self.engine.script_from
            row = np.zeros(self.engine.vocab_size, np.float32)
            row[script[min(place, len(script) - 1)]] = 20.0
            return row
        return toy_logits(self.tokens, self.engine.vocab_size)

    def candidates(self) -> tuple[np.ndarray, np.ndarray]:
        row = self.logits()
        order = np.argsort(-row, kind="stable")[:64]
        return order.astype(np.uint32), row[order]

    def score(self, tokens, *, cancel=None) -> tuple[np.ndarray, np.ndarray]:
        self._look(cancel)
        self.scored += 1
        rows = [toy_logits(tokens[:n], self.engine.vocab_size) for n in range(1, len(tokens))]
        logprobs = [
            row[t] - np.logaddexp.reduce(row) for row, t in zip(rows, tokens[1:], strict=True)
        ]
        return np.array(logprobs, np.float32), np.array([r.argmax() for r in rows], np.uint32)

    def save(self) -> None:
        self.saves.append(len(self.tokens))

    def close(self) -> None:
        self.closed = True

    def _look(self, cancel) -> None:
        if self.closed:
            raise InvalidInput("the session is closed")
        if cancel is not None and cancel.is_set:
            raise Cancelled("cancelled")

    def _require_alone(self) -> None:
        """Two threads in one session is a bug of the pool."""
        me = threading.get_ident()
        if self._owner is not None and self._owner != me:
            self.engine.overlaps += 1
        self._owner = me
        time.sleep(0)
        self._owner = None


class FakeEngine:
    device = "toy"
    device_description = "toy · no speed"

    def __init__(self, vocab_size: int, max_context: int = 512) -> None:
        self.vocab_size = vocab_size
        self.max_context = max_context
        self.sessions: list[FakeSession] = []
        self.script: Sequence[int] | None = None  # tokens to say, from position script_from on
        self.script_from = 0
        self.always_exact = True
        self.fail_at: int | None = None
        self.step_s = 0.0
        self.overlaps = 0
        self.refuse: Callable[[int], Exception | None] = lambda count: None
        self.closed = False

    def say(self, token_ids: Sequence[int], prompt_tokens: int) -> None:
        """Make the model answer ``token_ids`` to a prompt of this many tokens."""
        self.script, self.script_from = list(token_ids), prompt_tokens

    def session(self, max_tokens: int = 0) -> FakeSession:
        refusal = self.refuse(len(self.sessions))
        if refusal is not None:
            raise refusal
        self.sessions.append(FakeSession(self))
        return self.sessions[-1]

    def plan(self) -> dict[str, int]:
        return {"total_bytes": 1}

    def cache_stats(self) -> dict[str, int]:
        return {"hits": 0}

    def close(self) -> None:
        self.closed = True
        for session in self.sessions:
            session.closed = True
