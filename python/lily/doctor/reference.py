"""What the kernels mean, in NumPy float64, for comparing the CPU device.

Written from DESIGN section 4. Shapes as in metal/params.h. Knows no device, no storage format and
no tolerance; it is for checking and never computes an answer of the product.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]
L2_EPS = 1e-6


def wide(values: ArrayLike) -> Float64:
    """As float64."""
    return np.asarray(values, np.float64)


def sigmoid(x: ArrayLike) -> Float64:
    """1 / (1 + exp(-x)), without overflow."""
    return wide(np.exp(-np.logaddexp(0.0, -wide(x))))


def silu(x: ArrayLike) -> Float64:
    """x sigmoid(x)."""
    return wide(x) * sigmoid(x)


def softmax(x: Float64) -> Float64:
    """Along the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def rms_norm(x: ArrayLike, gain: ArrayLike, eps: float) -> Float64:
    """Along the last axis, times `gain`."""
    rows = wide(x)
    return wide(rows / np.sqrt((rows * rows).mean(-1, keepdims=True) + eps) * wide(gain))


def rotate(x: Float64, position: int, inv_freq: NDArray[np.float32]) -> Float64:
    """RoPE of rows [T, heads, D] from `position` on: half-split pairs of the first dimensions."""
    half = len(inv_freq)
    places = np.arange(position, position + len(x), dtype=np.float32)
    angle = wide(places[:, None] * inv_freq)[:, None]  # a float32 product, as models are trained
    a, b = x[..., :half], x[..., half : 2 * half]
    turned = [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
    return np.concatenate([*turned, x[..., 2 * half :]], -1)


def attend(q: Float64, gate: Float64, keys: Float64, values: Float64, position: int) -> Float64:
    """Causal attention of q [T, Q, D] on caches [G, P, D], times sigmoid(gate): [T, Q * D]."""
    tokens, heads, dim = q.shape
    shared = heads // len(keys)
    found = np.empty_like(q)
    for head in range(heads):
        k, v = (cache[head // shared, : position + tokens] for cache in (keys, values))
        scores = q[:, head] @ k.T / np.sqrt(dim)
        seen = np.arange(len(k)) <= np.arange(position, position + tokens)[:, None]
        found[:, head] = softmax(np.where(seen, scores, -np.inf)) @ v
    return np.asarray((found * sigmoid(gate)).reshape(tokens, heads * dim))


def causal_conv(rows: Float64, before: Float64, taps: ArrayLike) -> Float64:
    """Depthwise convolution of [T, C] after the rows `before`, then SiLU; taps [C, width]."""
    weight = wide(taps)
    width = weight.shape[1]
    padded = np.concatenate([before[len(before) - width + 1 :], rows])
    summed = sum(padded[tap : tap + len(rows)] * weight[:, tap] for tap in range(width))
    return silu(np.asarray(summed))


def l2_norm(x: Float64) -> Float64:
    """Along the last axis."""
    return wide(x / np.sqrt((x * x).sum(-1, keepdims=True) + L2_EPS))


def delta_gates(
    b: ArrayLike, a: ArrayLike, rate: ArrayLike, bias: ArrayLike
) -> tuple[Float64, Float64]:
    """(decay, beta) of each row and head; `rate` is -exp(A_log)."""
    decay = np.exp(wide(rate) * np.logaddexp(0.0, wide(a) + wide(bias)))
    return decay, sigmoid(b)


def delta_rule(
    q: Float64, k: Float64, v: Float64, decay: Float64, beta: Float64, state: Float64
) -> tuple[Float64, Float64]:
    """The recurrence: q, k [T, Hk, Dk], v [T, Hv, Dv], state [Hv, Dv, Dk] -> (o, state)."""
    shared = v.shape[1] // q.shape[1]
    outputs = np.empty_like(v)
    for t in range(len(v)):
        query, key = (np.repeat(x[t], shared, 0) for x in (q, k))
        state = state * decay[t][:, None, None]
        miss = (v[t] - np.einsum("hvk,hk->hv", state, key)) * beta[t][:, None]
        state = state + miss[:, :, None] * key[:, None, :]
        outputs[t] = np.einsum("hvk,hk->hv", state, query)
    return outputs, state


def route(logits: ArrayLike, slots: int) -> tuple[NDArray[np.int64], Float64]:
    """Rows of [experts | shared] logits -> (ids [T, S], weights [T, S + 1]); ties: lower id."""
    rows = wide(logits)
    ids = np.argsort(-rows[:, :-1], axis=-1, kind="stable")[:, :slots]
    chosen = softmax(np.take_along_axis(rows[:, :-1], ids, -1))
    return ids, np.concatenate([chosen, sigmoid(rows[:, -1:])], -1)
