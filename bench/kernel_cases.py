"""Decode kernels as cases: what one token asks of each, at the shapes of a model.

A case knows how to record its kernel on the next set of weights, and what the kernel must move.
Every case is one operation: one dispatch, except where a GPU's prefill needs two for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from lily._native import kernels as native

from bench.kernel_memory import Memory, row_bytes
from bench.shapes import ModelShape

EPS = 1e-6
CONTEXTS = (512, 4096, 32_768)
_SPLITS = native.ATTENTION_MAX_SPLITS
SAMPLE_BLOCK_ROWS, SAMPLE_BLOCK_BYTES, _SAMPLED_BYTES = 1024, 528, 528
_SAMPLER_BYTES = 24


@dataclass(frozen=True)
class Case:
    """One kernel at one shape."""

    family: str
    kernel: str
    shape: str
    moved_bytes: int  # weights, cache and state that one dispatch must read (and write, if it does)
    flops: int  # 0 where the kernel is not bound by arithmetic
    record: Callable[[native.Step], None]  # on the next set of weights
    latency: bool = False  # too small to be bound by either: the figure is its time alone
    # What a peer needs to do the same work: tokens, rows, cols of a product; tokens and position
    # (decode: context) of an attention; tokens of all others.
    sizes: tuple[int, ...] = (1,)

    @property
    def bound(self) -> str:
        """What limits the kernel: "memory", "compute" or "latency"."""
        return "latency" if self.latency else "compute" if self.flops else "memory"


def decode_cases(
    memory: Memory, shape: ModelShape, storage: str, contexts: Sequence[int] = CONTEXTS
) -> list[Case]:
    """All kernels of a decode step."""
    known = [context for context in contexts if context < shape.max_positions]
    return [
        *_linear(memory, shape, storage),
        *_experts(memory, shape, storage),
        _delta_step(memory, shape),
        *(_attention(memory, shape, context) for context in known),
        _merge(memory, shape, known[-1]),
        _logits(memory, shape, storage),
        _draw(memory, shape),
    ]


def cursor(memory: Memory, position: int) -> native.Tensor:
    """Cursor of params.h."""
    return memory.tensor(np.array([1, position, 0, 0], np.uint32))


def _linear(memory: Memory, shape: ModelShape, storage: str) -> list[Case]:
    x, gain = memory.normal(1, shape.hidden), memory.normal(shape.hidden)
    segments = {
        "qkv|z|b|a": (
            shape.channels, shape.value_width, shape.value_heads, shape.value_heads
        ),
        "q|k|v": (2 * shape.q_width, shape.kv_width, shape.kv_width),
    }  # fmt: skip

    def norm_case(name: str, rows: tuple[int, ...]) -> Case:
        y = memory.empty(1, sum(rows))

        def record(step: native.Step) -> None:
            matrices = [memory.matrix(storage, count, shape.hidden) for count in rows]
            native.linear_norm(step, y, x, gain, EPS, matrices)

        moved = sum(rows) * row_bytes(storage, shape.hidden)
        size, sizes = f"{name} {sum(rows)}x{shape.hidden}", (1, sum(rows), shape.hidden)
        return Case("linear", "gemv_norm", size, moved, 0, record, sizes=sizes)

    def add_case(name: str, cols: int) -> Case:
        wide, y = memory.normal(1, cols), memory.normal(1, shape.hidden)

        def record(step: native.Step) -> None:
            native.linear_add(step, y, wide, memory.matrix(storage, shape.hidden, cols))

        moved = shape.hidden * row_bytes(storage, cols)
        size, sizes = f"{name} {shape.hidden}x{cols}", (1, shape.hidden, cols)
        return Case("linear", "gemv_add", size, moved, 0, record, sizes=sizes)

    return [
        *(norm_case(name, rows) for name, rows in segments.items()),
        add_case("delta out", shape.value_width),
        add_case("attention out", shape.q_width),
    ]


@dataclass(frozen=True)
class MoeSet:
    """One layer's weights, and a choice among its experts for one token."""

    weights: native.MoeWeights
    logits: native.Tensor
    ids: native.Tensor


class MoeSets:
    """Sets in turn: all experts of a layer are chosen once before the next layer is cut."""

    def __init__(self, memory: Memory, shape: ModelShape, storage: str) -> None:
        self._memory, self._shape, self._storage = memory, shape, storage
        self._ready: list[MoeSet] = []

    def next(self) -> MoeSet:
        """The next choice."""
        if not self._ready:
            self._ready = self._cut_layer()
        return self._ready.pop()

    def _cut_layer(self) -> list[MoeSet]:
        stacks = expert_stacks(self._memory, self._shape, self._storage)
        experts, slots = self._shape.experts, self._shape.slots
        chosen = self._memory.random().permutation(experts)[: experts // slots * slots]
        sets = []
        for ids in chosen.astype(np.uint32).reshape(-1, slots):
            logits = np.zeros((1, experts + 1), np.float32)
            logits[0, ids] = 1
            weights = moe_weights(self._memory, self._shape, self._storage, stacks)
            tensors = self._memory.tensor(logits), self._memory.tensor(ids[None])
            sets.append(MoeSet(weights, *tensors))
        return sets


def expert_stacks(memory: Memory, shape: ModelShape, storage: str) -> dict[str, native.Matrix]:
    """The next layer's routed experts."""
    return {
        "gate": memory.matrix(storage, shape.width, shape.hidden, experts=shape.experts),
        "up": memory.matrix(storage, shape.width, shape.hidden, experts=shape.experts),
        "down": memory.matrix(storage, shape.hidden, shape.width, experts=shape.experts),
    }


def moe_weights(
    memory: Memory, shape: ModelShape, storage: str, stacks: dict[str, native.Matrix]
) -> native.MoeWeights:
    """These experts with the next router and shared expert."""
    router, hidden, shared = router_storage(storage), shape.hidden, shape.shared_width
    return native.MoeWeights(
        router=memory.matrix(router, shape.experts, hidden),
        shared_router=memory.matrix(router, 1, hidden),
        **stacks,
        shared_gate=memory.matrix(storage, shared, hidden),
        shared_up=memory.matrix(storage, shared, hidden),
        shared_down=memory.matrix(storage, hidden, shared),
        slots=shape.slots,
    )


def router_storage(storage: str) -> str:
    """8 bits where experts have 4, as MLX stores it."""
    return "q8" if storage == "q4" else storage


def _experts(memory: Memory, shape: ModelShape, storage: str) -> list[Case]:
    sets, stacks = MoeSets(memory, shape, storage), expert_stacks(memory, shape, storage)
    x, residual = memory.normal(1, shape.hidden), memory.normal(1, shape.hidden)
    gain, act = memory.normal(shape.hidden), memory.normal(shape.slots, shape.width)
    found, shared_act = memory.empty(1, shape.experts + 1), memory.normal(1, shape.shared_width)
    ids, weights = memory.empty(1, shape.slots, dtype="u32"), memory.normal(1, shape.slots + 1)

    def router(step: native.Step) -> None:
        moe = moe_weights(memory, shape, storage, stacks)
        native.moe_router(step, found, shared_act, x, gain, EPS, moe)

    def gate_up(step: native.Step) -> None:
        of = sets.next()
        native.moe_gate_up(step, act, ids, weights, of.logits, x, gain, EPS, of.weights)

    def down(step: native.Step) -> None:
        of = sets.next()
        native.moe_down(step, residual, act, shared_act, of.logits, of.ids, weights, of.weights)

    row = row_bytes(storage, shape.hidden)
    router_bytes = (shape.experts + 1) * row_bytes(router_storage(storage), shape.hidden)
    shared_down = shape.hidden * row_bytes(storage, shape.shared_width)
    down_bytes = shape.slots * shape.hidden * row_bytes(storage, shape.width) + shared_down
    gate_up_bytes = 2 * shape.slots * shape.width * row
    routed = f"{shape.slots} of {shape.experts} x {shape.width}x{shape.hidden}"
    whole = f"{shape.experts}+1, shared {shape.shared_width}, x{shape.hidden}"
    return [
        Case("moe", "router", whole, router_bytes + 2 * shape.shared_width * row, 0, router),
        Case("moe", "gate_up", routed, gate_up_bytes, 0, gate_up),
        Case("moe", "down", routed, down_bytes, 0, down),
    ]


def delta_layer(
    memory: Memory, shape: ModelShape, proj: native.Tensor, state: native.Tensor
) -> native.DeltaTensors:
    """A delta-net layer around these rows and this state."""
    return native.DeltaTensors(
        proj=proj,
        conv_weight=memory.normal(shape.channels, shape.conv_width, scale=0.5),
        conv_ring=memory.normal(shape.conv_width, shape.channels),
        decay_rate=memory.tensor(-np.linspace(0.05, 4, shape.value_heads, dtype=np.float32)),
        dt_bias=memory.normal(shape.value_heads),
        gain=memory.normal(shape.value_dim),
        state=state,
        key_heads=shape.key_heads,
        value_heads=shape.value_heads,
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
        eps=EPS,
    )


def _delta_step(memory: Memory, shape: ModelShape) -> Case:
    proj, y = memory.normal(1, shape.delta_columns), memory.empty(1, shape.value_width)
    place = cursor(memory, 5)
    extents = (shape.value_heads, shape.value_dim, shape.key_dim)

    def record(step: native.Step) -> None:
        state = memory.cut("f32", *extents)
        native.delta_step(step, y, state, delta_layer(memory, shape, proj, state), place)

    state_bytes = 4 * int(np.prod(extents))
    name = f"{shape.value_heads} x {shape.value_dim}x{shape.key_dim} fp32, read and written"
    return Case("delta", "step", name, 2 * state_bytes, 0, record)


def attention_layer(
    memory: Memory, shape: ModelShape, proj: native.Tensor, capacity: int
) -> native.AttentionTensors:
    """An attention layer around these rows, with the next cache."""
    half = shape.rotary_dims // 2
    return native.AttentionTensors(
        proj=proj,
        q_gain=memory.normal(shape.head_dim),
        k_gain=memory.normal(shape.head_dim),
        inv_freq=memory.tensor((shape.rope_theta ** -(np.arange(half) / half)).astype(np.float32)),
        k_cache=memory.cut("bf16", shape.kv_heads, capacity, shape.head_dim),
        v_cache=memory.cut("bf16", shape.kv_heads, capacity, shape.head_dim),
        q_heads=shape.q_heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        eps=EPS,
    )


def _attention(memory: Memory, shape: ModelShape, context: int) -> Case:
    proj = memory.normal(1, shape.attention_columns)
    partial = memory.empty(shape.q_heads, _SPLITS, shape.head_dim + 2)
    place = cursor(memory, context - 1)

    def record(step: native.Step) -> None:
        layer = attention_layer(memory, shape, proj, context)
        native.attention_decode(step, partial, layer, place)

    moved = 2 * context * shape.kv_width * 2
    name = f"context {context:,}, bf16 cache"
    return Case("attention", "decode", name, moved, 0, record, sizes=(1, context))


def _merge(memory: Memory, shape: ModelShape, context: int) -> Case:
    proj = memory.normal(1, shape.attention_columns)
    splits = min(_SPLITS, -(-context // 256))
    partial = memory.normal(shape.q_heads, _SPLITS, shape.head_dim + 2)
    y, place = memory.empty(1, shape.q_width), cursor(memory, context - 1)
    layer = attention_layer(memory, shape, proj, context)

    def record(step: native.Step) -> None:
        native.attention_merge(step, y, partial, layer, place)

    moved = shape.q_heads * splits * (shape.head_dim + 2) * 4
    return Case(
        "attention", "merge", f"context {context:,}, {splits} parts", moved, 0, record, True
    )


def _logits(memory: Memory, shape: ModelShape, storage: str) -> Case:
    x, gain = memory.normal(1, shape.hidden), memory.normal(shape.hidden)
    logits, blocks = memory.empty(1, shape.vocab), _blocks(memory, shape)

    def record(step: native.Step) -> None:
        head = memory.matrix(storage, shape.vocab, shape.hidden)
        native.sample_logits(step, logits, blocks, x, gain, EPS, head)

    moved = shape.vocab * row_bytes(storage, shape.hidden)
    size, sizes = f"{shape.vocab}x{shape.hidden}", (1, shape.vocab, shape.hidden)
    return Case("sample", "logits", size, moved, 0, record, sizes=sizes)


def _draw(memory: Memory, shape: ModelShape) -> Case:
    blocks = _filled_blocks(memory, shape)
    sampler = memory.empty(_SAMPLER_BYTES, dtype="u8")  # all zero: greedy
    result, place = memory.empty(_SAMPLED_BYTES, dtype="u8"), cursor(memory, 5)

    def record(step: native.Step) -> None:
        native.sample_draw(step, result, blocks, sampler, place, shape.vocab)

    moved = -(-shape.vocab // SAMPLE_BLOCK_ROWS) * SAMPLE_BLOCK_BYTES
    return Case("sample", "draw", f"greedy of {shape.vocab:,}", moved, 0, record, True)


def _blocks(memory: Memory, shape: ModelShape) -> native.Tensor:
    count = -(-shape.vocab // SAMPLE_BLOCK_ROWS)
    return memory.empty(count * SAMPLE_BLOCK_BYTES, dtype="u8")


def _filled_blocks(memory: Memory, shape: ModelShape) -> native.Tensor:
    """As sample_logits leaves them: in each block the best logits, from the largest down."""
    count, best = -(-shape.vocab // SAMPLE_BLOCK_ROWS), native.CANDIDATES
    layout = [("max_logit", "<f4"), ("sum_exp", "<f4"), ("num_candidates", "<u4"), ("pad", "<u4")]
    blocks = np.zeros(count, [*layout, ("ids", "<u4", best), ("logits", "<f4", best)])
    blocks["logits"] = -np.sort(-memory.random().standard_normal((count, best)))
    blocks["max_logit"], blocks["sum_exp"] = blocks["logits"][:, 0], 10
    blocks["num_candidates"] = best
    blocks["ids"] = np.arange(count)[:, None] * SAMPLE_BLOCK_ROWS + np.arange(best)
    return memory.tensor(np.frombuffer(blocks.tobytes(), np.uint8))
