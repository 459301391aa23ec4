"""Sampling once more in Python: the counter-based random number and the draw from a whole row.

Written from DESIGN section 6 and Salmon et al. 2011 (Philox), not from the C++. Ties between equal
logits go to the lower id, which no framework promises. Knows no device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MASK = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (second >> 32) ^ c1 ^ k0,
            second & _MASK,
            (first >> 32) ^ c3 ^ k1,
            first & _MASK,
        )
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) that decides the token at `position`: 24 bits, exact in float32."""
    counter = (position & _MASK, position >> 32, 0, 0)
    return (philox(counter, (seed & _MASK, seed >> 32))[0] >> 8) * 2.0**-24


@dataclass(frozen=True)
class Filters:
    """How to draw; the fields of Sampler in metal/params.h, with their values for "off"."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


def ranked(logits: ArrayLike) -> NDArray[np.int64]:
    """Ids by logit, largest first, then by id."""
    return np.argsort(-np.asarray(logits, np.float64), kind="stable")


def survivors(logits: ArrayLike, filters: Filters) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The ids that the filters leave, best first, and their unnormalised weights."""
    ids = ranked(logits)
    scores = np.asarray(logits, np.float64)[ids] / filters.temperature
    weights = np.exp(scores - scores[0])
    if filters.top_k:
        ids, weights = ids[: filters.top_k], weights[: filters.top_k]
    if filters.top_p < 1:
        # The smallest set whose mass reaches top_p, so the one that crosses it stays.
        mass = np.cumsum(weights) / weights.sum()
        count = min(int(np.searchsorted(mass, filters.top_p, side="left")) + 1, len(ids))
        ids, weights = ids[:count], weights[:count]
    keep = weights >= filters.min_p * weights[0]
    return ids[keep], weights[keep]


def draw(logits: ArrayLike, filters: Filters, random: float) -> int:
    """The token that `random` in [0, 1) picks from a whole row of logits."""
    if filters.temperature == 0:
        return int(ranked(logits)[0])
    ids, weights = survivors(logits, filters)
    total = np.cumsum(weights)
    index = int(np.searchsorted(total, random * total[-1], side="right"))
    return int(ids[min(index, len(ids) - 1)])
