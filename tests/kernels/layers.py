"""Random attention, gated-delta and expert layers, as float32 arrays and on a device.

Shared by the test files of several families; holds no expectation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from lily._native import kernels as native
from numpy.typing import NDArray

from kernels.arena import Arena
from kernels.weights import Weight, make_weight, to_bf16

Float32 = NDArray[np.float32]

CURSOR = np.dtype([("token_id", "<u4"), ("position", "<u4"), ("reserved", "<u4", 2)])
THETA = 1e7


def cursor_at(position: int, token_id: int = 0) -> np.ndarray:
    """A session's place, as the bytes of Cursor in metal/params.h."""
    cursor = np.zeros(1, CURSOR)
    cursor["token_id"], cursor["position"] = token_id, position
    return cursor


@dataclass
class Attention:
    """One attention layer with a cache that already holds `position` tokens."""

    q_heads: int
    kv_heads: int
    head_dim: int
    rotary_dims: int
    capacity: int
    cache_dtype: str
    q_gain: Float32
    k_gain: Float32
    inv_freq: Float32
    k_cache: np.ndarray  # as stored; NaN past the tokens that it holds
    v_cache: np.ndarray
    eps: float = 1e-6

    @property
    def columns(self) -> int:
        """Width of a row of proj."""
        return 2 * self.head_dim * (self.q_heads + self.kv_heads)

    def rows(self, rng: np.random.Generator, tokens: int) -> Float32:
        """Random rows of proj, large enough for a softmax that is far from flat."""
        return (rng.standard_normal((tokens, self.columns)) * 2).astype(np.float32)

    def on(self, arena: Arena, proj: Float32) -> native.AttentionTensors:
        """The layer on a device, with these rows."""
        dtype = "bf16" if self.cache_dtype == "bf16" else None
        caches = [arena.inout(cache, dtype) for cache in (self.k_cache, self.v_cache)]
        return self.with_caches(arena, arena.input(proj), caches)

    def with_caches(
        self, arena: Arena, proj: native.Tensor, caches: list[native.Tensor]
    ) -> native.AttentionTensors:
        """The layer with tensors that are on the device already."""
        return native.AttentionTensors(
            proj=proj,
            q_gain=arena.input(self.q_gain),
            k_gain=arena.input(self.k_gain),
            inv_freq=arena.input(self.inv_freq),
            k_cache=caches[0],
            v_cache=caches[1],
            q_heads=self.q_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            rotary_dims=self.rotary_dims,
            eps=self.eps,
        )


def make_attention(
    rng: np.random.Generator,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    rotary_dims: int,
    *,
    position: int,
    capacity: int,
    cache_dtype: str = "f32",
) -> Attention:
    """A layer whose cache holds random keys (of RMS 1, as normed ones have) and values."""
    caches = []
    for _ in range(2):
        shape = (kv_heads, capacity, head_dim)
        cache = rng.standard_normal(shape, dtype=np.float32)
        cache[:, position:] = np.nan
        caches.append(to_bf16(cache) if cache_dtype == "bf16" else cache)
    half = rotary_dims // 2
    return Attention(
        q_heads,
        kv_heads,
        head_dim,
        rotary_dims,
        capacity,
        cache_dtype,
        *(rng.uniform(0.5, 1.5, (2, head_dim)).astype(np.float32)),
        (THETA ** -(np.arange(half) / half)).astype(np.float32),
        *caches,
    )


@dataclass
class Delta:
    """One gated-delta layer with what it remembers of `position` tokens."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_weight: Float32
    conv_ring: Float32
    decay_rate: Float32
    dt_bias: Float32
    gain: Float32
    state: Float32
    eps: float = 1e-6

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def columns(self) -> int:
        """Width of a row of proj."""
        return self.channels + self.value_heads * (self.value_dim + 2)

    def rows(self, rng: np.random.Generator, tokens: int) -> Float32:
        """Random rows of proj."""
        return (rng.standard_normal((tokens, self.columns)) * 1.5).astype(np.float32)

    def memory_on(self, arena: Arena) -> tuple[native.Tensor, native.Tensor]:
        """Ring and state on a device."""
        return arena.inout(self.conv_ring), arena.inout(self.state)

    def on(
        self, arena: Arena, proj: Float32, memory: tuple[native.Tensor, native.Tensor]
    ) -> native.DeltaTensors:
        """The layer on a device, with these rows."""
        return native.DeltaTensors(
            proj=arena.input(proj),
            conv_weight=arena.input(self.conv_weight),
            conv_ring=memory[0],
            decay_rate=arena.input(self.decay_rate),
            dt_bias=arena.input(self.dt_bias),
            gain=arena.input(self.gain),
            state=memory[1],
            key_heads=self.key_heads,
            value_heads=self.value_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            eps=self.eps,
        )


def make_delta(
    rng: np.random.Generator, key_heads: int, value_heads: int, key_dim: int, value_dim: int
) -> Delta:
    """A layer with decays from nearly none to nearly all, and a memory that is not zero."""

    def normal(*shape: int) -> Float32:
        return rng.standard_normal(shape, dtype=np.float32)

    channels = 2 * key_heads * key_dim + value_heads * value_dim
    return Delta(
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        conv_weight=normal(channels, 4) / 2,
        conv_ring=normal(4, channels),
        decay_rate=-np.exp(rng.uniform(-4, 2, value_heads)).astype(np.float32),
        dt_bias=normal(value_heads),
        gain=normal(value_dim),
        state=normal(value_heads, value_dim, key_dim) / 4,
    )


@dataclass
class Experts:
    """One mixture-of-experts layer."""

    slots: int
    weights: dict[str, Weight]

    def on(self, arena: Arena) -> native.MoeWeights:
        """The layer on a device."""
        matrices = {name: arena.matrix(weight) for name, weight in self.weights.items()}
        return native.MoeWeights(**matrices, slots=self.slots)


def make_experts(
    rng: np.random.Generator,
    storages: tuple[tuple[str, int], tuple[str, int], tuple[str, int]],
    *,
    hidden: int,
    experts: int,
    slots: int,
    width: int,
    shared_width: int,
) -> Experts:
    """Weights stored as (router, experts, shared expert)."""
    router, routed, shared = storages
    shapes = {
        "router": (router, (experts, hidden)),
        "shared_router": (router, (1, hidden)),
        "gate": (routed, (experts, width, hidden)),
        "up": (routed, (experts, width, hidden)),
        "down": (routed, (experts, hidden, width)),
        "shared_gate": (shared, (shared_width, hidden)),
        "shared_up": (shared, (shared_width, hidden)),
        "shared_down": (shared, (hidden, shared_width)),
    }
    return Experts(
        slots,
        {
            name: make_weight(rng, *storage, shape, scale=1 / np.sqrt(shape[-1]))
            for name, (storage, shape) in shapes.items()
        },
    )
