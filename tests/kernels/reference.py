"""The model's mathematics once more, in NumPy float64.

Written from DESIGN section 4 and the semantics of `transformers`, not from the C++: two statements
of a kernel may share a mistake, three rarely do. Shapes as in metal/params.h. Knows no device.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]

L2_EPS = 1e-6  # of the delta net's q and k; RMSNorm's own eps is a number of config.json


def f64(values: ArrayLike) -> Float64:
    """As float64."""
    return np.asarray(values, np.float64)


def sigmoid(x: ArrayLike) -> Float64:
    """Logistic function that does not overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * f64(x)))


def silu(x: ArrayLike) -> Float64:
    """x * sigmoid(x)."""
    return f64(x) * sigmoid(x)


def softplus(x: ArrayLike) -> Float64:
    """log(1 + exp(x)) without overflow."""
    return np.logaddexp(0.0, f64(x))


def softmax(x: Float64) -> Float64:
    """Along the last axis."""
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def rms_norm(x: ArrayLike, gain: ArrayLike, eps: float) -> Float64:
    """Along the last axis; `gain` multiplies."""
    wide = f64(x)
    return wide / np.sqrt(np.square(wide).mean(-1, keepdims=True) + eps) * f64(gain)


# --- attention --------------------------------------------------------------------------------


def split_attention(
    proj: ArrayLike, q_heads: int, kv_heads: int, head_dim: int
) -> tuple[Float64, Float64, Float64, Float64]:
    """Rows of q_proj | k_proj | v_proj as (queries, gates, keys, values), each [T, heads, D]."""
    wide = f64(proj)
    tokens = len(wide)
    cut = [q_heads * 2 * head_dim, (q_heads * 2 + kv_heads) * head_dim]
    queries, keys, values = np.split(wide, cut, axis=1)
    paired = queries.reshape(tokens, q_heads, 2, head_dim)
    heads = (tokens, kv_heads, head_dim)
    return paired[:, :, 0], paired[:, :, 1], keys.reshape(heads), values.reshape(heads)


def rotate(x: Float64, positions: NDArray[np.int64], inv_freq: NDArray[np.float32]) -> Float64:
    """RoPE of [T, heads, D] on the first 2 * len(inv_freq) dims, half-split pairs.

    The angle is a float32 product, as in transformers: at large positions that is what it was
    trained with, and the exact product is another angle.
    """
    half = len(inv_freq)
    angle = f64(positions.astype(np.float32)[:, None] * inv_freq)[:, None, :]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate(
        [
            first * np.cos(angle) - second * np.sin(angle),
            second * np.cos(angle) + first * np.sin(angle),
            rest,
        ],
        axis=-1,
    )


def attend(
    queries: Float64, keys: Float64, values: Float64, gates: Float64, position: int
) -> Float64:
    """Causal attention of queries [T, Q, D] over keys and values [G, P, D], times sigmoid(gate).

    Row t stands at `position + t` and sees everything up to itself. Gives [T, Q * D].
    """
    tokens, q_heads, head_dim = queries.shape
    rows = []
    for t in range(tokens):
        seen = position + t + 1
        heads = []
        for head in range(q_heads):
            group = head // (q_heads // len(keys))
            scores = keys[group, :seen] @ queries[t, head] / np.sqrt(head_dim)
            heads.append(softmax(scores) @ values[group, :seen])
        rows.append(np.stack(heads) * sigmoid(gates[t]))
    return np.stack(rows).reshape(tokens, q_heads * head_dim)


# --- gated delta net --------------------------------------------------------------------------


def causal_conv(inputs: Float64, history: Float64, weight: ArrayLike) -> Float64:
    """Depthwise convolution of [T, C] after `history` (the rows before it), then SiLU."""
    taps = f64(weight)
    width = taps.shape[1]
    padded = np.concatenate([history[len(history) - (width - 1) :], inputs])
    windows = [padded[tap : tap + len(inputs)] * taps[:, tap] for tap in range(width)]
    return silu(np.sum(windows, axis=0))


def l2_norm(x: Float64) -> Float64:
    """x * rsqrt(sum x^2 + 1e-6) along the last axis."""
    return x / np.sqrt(np.square(x).sum(-1, keepdims=True) + L2_EPS)


def delta_rule(
    queries: Float64,
    keys: Float64,
    values: Float64,
    decay: Float64,
    beta: Float64,
    state: Float64,
) -> tuple[Float64, Float64]:
    """The recurrence of one value head: q, k [T, Dk], v [T, Dv], state [Dv, Dk] -> (o, state)."""
    outputs = []
    for q, k, v, g, b in zip(queries, keys, values, decay, beta, strict=True):
        state = g * state
        state = state + np.outer(b * (v - state @ k), k)
        outputs.append(state @ q)
    return np.stack(outputs), state


# --- mixture of experts -----------------------------------------------------------------------


def top_k(logits: ArrayLike, count: int) -> NDArray[np.int64]:
    """Indices of the largest along the last axis, largest first.

    Ties go to the lower index. torch.topk leaves them unspecified; Lily does not.
    """
    return np.argsort(-f64(logits), axis=-1, kind="stable")[..., :count]


def route(logits: ArrayLike, slots: int) -> tuple[NDArray[np.int64], Float64]:
    """Rows of [E experts | shared] logits -> (ids [T, S], weights [T, S + 1])."""
    wide = f64(logits)
    ids = top_k(wide[:, :-1], slots)
    # Softmax over all experts, then renormalised over the chosen: the same as over the chosen.
    chosen = np.take_along_axis(softmax(wide[:, :-1]), ids, -1)
    weights = chosen / chosen.sum(-1, keepdims=True)
    return ids, np.concatenate([weights, sigmoid(wide[:, -1:])], axis=-1)


def swiglu(x: Float64, gate: Float64, up: Float64) -> Float64:
    """SiLU(gate x) * up x for rows of x."""
    return silu(x @ gate.T) * (x @ up.T)


# --- the gate's encoder -----------------------------------------------------------------------


def layer_norm(x: ArrayLike, gain: ArrayLike, shift: ArrayLike, eps: float) -> Float64:
    """Along the last axis; the variance is the biased one."""
    wide = f64(x)
    centred = wide - wide.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps) * f64(gain) + shift


def gelu(x: ArrayLike) -> Float64:
    """x times the normal distribution, exact."""
    wide = f64(x)
    tails = [math.erfc(-value / math.sqrt(2.0)) for value in wide.ravel()]
    return 0.5 * wide * np.reshape(tails, wide.shape)


def window_attention(qkv: ArrayLike, bias: ArrayLike, lengths: ArrayLike, heads: int) -> Float64:
    """Rows attend to all rows of their window; qkv [T, 3 * heads * D]."""
    parts = []
    wide = f64(qkv) + f64(bias)
    for rows in np.split(wide, np.cumsum(lengths)[:-1]):
        q, k, v = rows.reshape(len(rows), 3, heads, -1).transpose(1, 2, 0, 3)
        weights = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
        parts.append((weights @ v).transpose(1, 0, 2).reshape(len(rows), -1))
    return np.concatenate(parts)
