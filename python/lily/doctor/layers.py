"""A random attention layer and a random gated-delta layer: inputs on a device, and what they mean.

Shared by the checks of decode and prefill. Knows no tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lily._native import kernels as native
from lily.doctor import reference as ref
from lily.doctor.check import EPS
from lily.doctor.shapes import ModelShape
from lily.doctor.tensors import Array, Float64, Place, from_bf16, normal, to_bf16

_THETA = 1e7


def cursor(place: Place, position: int) -> native.Tensor:
    """Cursor of metal/params.h."""
    return place.tensor(np.array([0, position, 0, 0], "<u4").view(np.uint8))


@dataclass(frozen=True, eq=False)
class Attention:
    """Projected rows, and a bf16 cache that holds the tokens before them; NaN behind."""

    shape: ModelShape
    proj: Array
    q_gain: Array
    k_gain: Array
    inv_freq: Array
    caches: tuple[Array, Array]  # k, v as bf16 bits [G, P, D]

    @classmethod
    def draw(
        cls, rng: np.random.Generator, shape: ModelShape, *, tokens: int, position: int,
        capacity: int,
    ) -> Attention:  # fmt: skip
        """With a cache of `position` tokens."""
        caches = []
        for _ in range(2):
            cache = to_bf16(normal(rng, shape.kv_heads, capacity, shape.head_dim))
            cache[:, position:] = 0x7FC0
            caches.append(cache)
        half = shape.rotary_dims // 2
        gains = rng.uniform(0.5, 1.5, (2, shape.head_dim)).astype(np.float32)
        inv_freq = (_THETA ** -(np.arange(half) / half)).astype(np.float32)
        proj = normal(rng, tokens, sum(shape.attention_rows), scale=2)
        return cls(shape, proj, gains[0], gains[1], inv_freq, (caches[0], caches[1]))

    def on(self, place: Place, *, appends: bool = True) -> native.AttentionTensors:
        """On a device; the caches count as results where a kernel appends to them."""
        names = ("k_cache", "v_cache")
        if appends:
            k, v = (place.inout(n, c, "bf16") for n, c in zip(names, self.caches, strict=True))
        else:
            k, v = (place.tensor(cache, "bf16") for cache in self.caches)
        return native.AttentionTensors(
            proj=place.tensor(self.proj),
            q_gain=place.tensor(self.q_gain),
            k_gain=place.tensor(self.k_gain),
            inv_freq=place.tensor(self.inv_freq),
            k_cache=k,
            v_cache=v,
            q_heads=self.shape.q_heads,
            kv_heads=self.shape.kv_heads,
            head_dim=self.shape.head_dim,
            rotary_dims=self.shape.rotary_dims,
            eps=EPS,
        )

    def _split(self) -> tuple[Float64, Float64, Float64, Float64]:
        """Queries, gates, keys, values, each [T, heads, D]."""
        q, k, v = np.split(ref.wide(self.proj), np.cumsum(self.shape.attention_rows)[:2], 1)
        dim = self.shape.head_dim
        paired = q.reshape(len(q), self.shape.q_heads, 2, dim)
        heads = (len(q), self.shape.kv_heads, dim)
        return paired[:, :, 0], paired[:, :, 1], k.reshape(heads), v.reshape(heads)

    def queries(self, position: int) -> tuple[Float64, Float64]:
        """(normed and rotated queries, gates)."""
        q, gates, _, _ = self._split()
        return ref.rotate(ref.rms_norm(q, self.q_gain, EPS), position, self.inv_freq), gates

    def appended(self, position: int) -> tuple[Array, Array]:
        """Both caches with the rows' own keys and values, as float32."""
        _, _, keys, values = self._split()
        keys = ref.rotate(ref.rms_norm(keys, self.k_gain, EPS), position, self.inv_freq)
        found = []
        for cache, rows in zip(self.caches, (keys, values), strict=True):
            filled = from_bf16(cache)
            filled[:, position : position + len(rows)] = from_bf16(
                to_bf16(rows.swapaxes(0, 1).astype(np.float32))
            )
            found.append(filled)
        return found[0], found[1]


@dataclass(frozen=True, eq=False)
class Delta:
    """Projected rows, and a memory that is not empty."""

    shape: ModelShape
    proj: Array
    conv_weight: Array
    ring: Array
    decay_rate: Array
    dt_bias: Array
    gain: Array
    state: Array

    @classmethod
    def draw(cls, rng: np.random.Generator, shape: ModelShape, *, tokens: int) -> Delta:
        """Decays reach from nearly none to nearly all."""
        heads = shape.value_heads
        return cls(
            shape,
            proj=normal(rng, tokens, sum(shape.delta_rows), scale=1.5),
            conv_weight=normal(rng, shape.channels, shape.conv_width, scale=0.5),
            ring=normal(rng, shape.conv_width, shape.channels),
            decay_rate=-np.exp(rng.uniform(-4, 2, heads)).astype(np.float32),
            dt_bias=normal(rng, heads),
            gain=rng.uniform(0.5, 1.5, shape.value_dim).astype(np.float32),
            state=normal(rng, heads, shape.value_dim, shape.key_dim, scale=0.25),
        )

    def on(self, place: Place) -> native.DeltaTensors:
        """On a device; ring and state count as results."""
        return native.DeltaTensors(
            proj=place.tensor(self.proj),
            conv_weight=place.tensor(self.conv_weight),
            conv_ring=place.inout("ring", self.ring),
            decay_rate=place.tensor(self.decay_rate),
            dt_bias=place.tensor(self.dt_bias),
            gain=place.tensor(self.gain),
            state=place.inout("state", self.state),
            key_heads=self.shape.key_heads,
            value_heads=self.shape.value_heads,
            key_dim=self.shape.key_dim,
            value_dim=self.shape.value_dim,
            eps=EPS,
        )

    def mixed(self, position: int) -> tuple[Float64, Float64, Float64, Float64, Float64]:
        """After convolution and gates: q, k [T, Hk, Dk], v [T, Hv, Dv], decay, beta [T, Hv]."""
        shape, width = self.shape, self.shape.conv_width
        inputs, _, b, a = np.split(ref.wide(self.proj), np.cumsum(shape.delta_rows)[:3], 1)
        before = ref.wide([self.ring[(position - back) % width] for back in range(width, 0, -1)])
        convolved = ref.causal_conv(inputs, before, self.conv_weight)
        keys = shape.key_heads * shape.key_dim
        q, k, v = np.split(convolved, [keys, 2 * keys], 1)
        heads = (len(q), shape.key_heads, shape.key_dim)
        q = ref.l2_norm(q.reshape(heads)) / np.sqrt(shape.key_dim)
        k = ref.l2_norm(k.reshape(heads))
        gates = ref.delta_gates(b, a, self.decay_rate, self.dt_bias)
        return q, k, v.reshape(len(q), shape.value_heads, shape.value_dim), *gates

    def gated(self, outputs: Float64) -> Float64:
        """The gated norm of what the rule gave: [T, Hv * Dv]."""
        z = np.split(ref.wide(self.proj), np.cumsum(self.shape.delta_rows)[:3], 1)[1]
        normed = ref.rms_norm(outputs, self.gain, EPS)
        return normed.reshape(z.shape) * ref.silu(z)

    def ring_after(self, position: int) -> Array:
        """The ring of inputs after these rows."""
        ring = self.ring.copy()
        for t, row in enumerate(self.proj):
            ring[(position + t) % len(ring)] = row[: self.shape.channels]
        return ring

    def expected(self, position: int) -> dict[str, Array]:
        """Everything that the layer writes."""
        q, k, v, decay, beta = self.mixed(position)
        outputs, state = ref.delta_rule(q, k, v, decay, beta, ref.wide(self.state))
        return {"y": self.gated(outputs), "state": state, "ring": self.ring_after(position)}
