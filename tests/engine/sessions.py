"""Ways of driving a session that several test files share."""

from __future__ import annotations

import itertools

import numpy as np
from lily import _native

from .checkpoints import TINY

GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0}


def greedy(session: _native.Session, count: int) -> list[int]:
    """The next tokens by arg-max; the logits of the last one are ready afterwards."""
    tokens = []
    draw = session.sampled()
    for _ in range(count):
        tokens.append(draw.token_id)
        draw = session.step(draw.token_id)
    return tokens


def keep_busy(session: _native.Session, cancel: _native.Cancel | None = None) -> None:
    """Prefills one long prompt after another, until something ends it."""
    for token in itertools.count():
        session.prefill(np.full(640, token % TINY.vocab, np.uint32), cancel=cancel)


def close_to(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-5) -> bool:
    return bool(np.isfinite(a).all() and np.abs(a - b).max() <= tolerance)
