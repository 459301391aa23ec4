"""Prefill kernels as cases: what a chunk of a prompt asks of each, at the shapes of a model.

Operations are those that the mathematics needs: two for a multiply-add, causal attention without
its masked half, the delta rule as three products of a state with a vector. Padding counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from lily._native import kernels as native

from bench.kernel_cases import (
    Case,
    attention_layer,
    delta_layer,
    expert_stacks,
)
from bench.kernel_memory import Memory, row_bytes
from bench.shapes import ModelShape

EPS = 1e-6
TOKENS = (128, 512)
POSITIONS = (0, 3584)  # of attention's chunk
SCORED = 64  # tokens whose logits are scored at once
_VALUES = 4  # bytes of an fp32


def prefill_cases(
    memory: Memory,
    shape: ModelShape,
    storage: str,
    lengths: Sequence[int] = TOKENS,
    positions: Sequence[int] = POSITIONS,
) -> list[Case]:
    """All kernels of a prefill chunk: products at every length, the others at the last."""
    longest = lengths[-1]
    cases = [_embed(memory, shape, storage, longest), _norm(memory, shape, longest)]
    for tokens in lengths:
        cases += _linear(memory, shape, storage, tokens)
        cases += _grouped(memory, shape, storage, tokens)
    cases += _routing(memory, shape, longest)
    for position in positions:
        cases.append(_attention(memory, shape, longest, position))
    cases += _delta(memory, shape, longest)
    cases += [_rope(memory, shape, longest), _score(memory, shape, min(SCORED, longest))]
    return cases


def _embed(memory: Memory, shape: ModelShape, storage: str, tokens: int) -> Case:
    hidden = memory.empty(tokens, shape.hidden)

    def record(step: native.Step) -> None:
        ids = memory.random().integers(0, shape.vocab, tokens, dtype=np.uint32)
        table = memory.matrix(storage, shape.vocab, shape.hidden)
        native.embed_rows(step, hidden, memory.tensor(ids), table)

    moved = tokens * (row_bytes(storage, shape.hidden) + shape.hidden * _VALUES)
    return Case("embed", "rows", f"{tokens} of {shape.vocab:,}", moved, 0, record, sizes=(tokens,))


def _norm(memory: Memory, shape: ModelShape, tokens: int) -> Case:
    y, gain = memory.empty_activation(tokens, shape.hidden), memory.normal(shape.hidden)

    def record(step: native.Step) -> None:
        native.norm_rms(step, y, memory.cut("f32", tokens, shape.hidden), gain, EPS)

    moved = tokens * shape.hidden * (_VALUES + memory.activation_bytes)
    return Case("norm", "rms", f"{tokens}x{shape.hidden}", moved, 0, record, sizes=(tokens,))


def _linear(memory: Memory, shape: ModelShape, storage: str, tokens: int) -> list[Case]:
    x = memory.activation(tokens, shape.hidden)
    segments = {
        "qkv|z|b|a": (shape.channels, shape.value_width, shape.value_heads, shape.value_heads),
        "q|k|v": (2 * shape.q_width, shape.kv_width, shape.kv_width),
    }

    def case(name: str, rows: tuple[int, ...]) -> Case:
        y = memory.empty(tokens, sum(rows))

        def record(step: native.Step) -> None:
            native.linear(step, y, x, [memory.matrix(storage, n, shape.hidden) for n in rows])

        flops = 2 * tokens * sum(rows) * shape.hidden
        moved = sum(rows) * row_bytes(storage, shape.hidden)
        size = f"{name} {tokens} x {sum(rows)}x{shape.hidden}"
        sizes = (tokens, sum(rows), shape.hidden)
        return Case("linear", "gemm", size, moved, flops, record, sizes=sizes)

    def add_case(name: str, cols: int) -> Case:
        wide, y = memory.activation(tokens, cols), memory.normal(tokens, shape.hidden)

        def record(step: native.Step) -> None:
            native.linear_add(step, y, wide, memory.matrix(storage, shape.hidden, cols))

        flops = 2 * tokens * shape.hidden * cols
        size = f"{name} {tokens} x {shape.hidden}x{cols}"
        moved = shape.hidden * row_bytes(storage, cols)
        sizes = (tokens, shape.hidden, cols)
        return Case("linear", "gemm_add", size, moved, flops, record, sizes=sizes)

    cases = [case(name, rows) for name, rows in segments.items()]
    return [*cases, add_case("delta out", shape.value_width)]


def _choices(memory: Memory, shape: ModelShape, tokens: int) -> np.ndarray:
    """Different experts for every token."""
    order = np.argsort(memory.random().random((tokens, shape.experts)), axis=-1)
    return np.ascontiguousarray(order[:, : shape.slots].astype(np.uint32))


def _grouped(memory: Memory, shape: ModelShape, storage: str, tokens: int) -> list[Case]:
    slots, rows = shape.slots, tokens * shape.slots
    flat = _choices(memory, shape, tokens).ravel()
    order = memory.tensor(np.argsort(flat, kind="stable").astype(np.uint32))
    counts = np.bincount(flat, minlength=shape.experts)
    offsets = memory.tensor(np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32))
    x, act = memory.activation(tokens, shape.hidden), memory.activation(rows, shape.width)
    y = memory.empty(rows, shape.hidden)

    def gate_up(step: native.Step) -> None:
        of = expert_stacks(memory, shape, storage)
        native.moe_grouped_gate_up(step, act, x, order, offsets, of["gate"], of["up"], slots)

    def down(step: native.Step) -> None:
        of = expert_stacks(memory, shape, storage)
        native.moe_grouped_down(step, y, act, order, offsets, of["down"])

    used = int((counts > 0).sum())
    size = f"{tokens} x {slots} of {shape.experts} x {shape.width}x{shape.hidden}"
    flops = 2 * rows * shape.width * shape.hidden
    moved = used * shape.width * row_bytes(storage, shape.hidden)
    return [
        Case("moe", "grouped_gate_up", size, 2 * moved, 2 * flops, gate_up, sizes=(tokens,)),
        Case("moe", "grouped_down", size, moved, flops, down, sizes=(tokens,)),
    ]


def _routing(memory: Memory, shape: ModelShape, tokens: int) -> list[Case]:
    slots, rows = shape.slots, tokens * shape.slots
    logits = memory.normal(tokens, shape.experts + 1)
    ids = memory.tensor(_choices(memory, shape, tokens))
    weights = memory.normal(tokens, slots + 1, scale=1 / slots)
    order = memory.empty(rows, dtype="u32")
    offsets = memory.empty(shape.experts + 1, dtype="u32")
    residual, shared = memory.normal(tokens, shape.hidden), memory.normal(tokens, shape.hidden)
    found, found_weights = memory.empty(tokens, slots, dtype="u32"), memory.empty(tokens, slots + 1)

    def combine(step: native.Step) -> None:
        y = memory.cut("f32", rows, shape.hidden)
        native.moe_combine(step, residual, y, shared, weights)

    def route(step: native.Step) -> None:
        native.moe_route(step, found, found_weights, logits)

    def sort(step: native.Step) -> None:
        native.moe_sort(step, order, offsets, ids)

    size = f"{tokens} x {slots} of {shape.experts}"
    return [
        Case("moe", "route", size, tokens * (shape.experts + 1) * _VALUES, 0, route, True,
             (tokens,)),
        Case("moe", "sort", size, 2 * rows * _VALUES, 0, sort, True, (tokens,)),
        Case("moe", "combine", f"{size} x {shape.hidden}",
             (rows + 3 * tokens) * shape.hidden * _VALUES, 0, combine, sizes=(tokens,)),
    ]  # fmt: skip


def _attention(memory: Memory, shape: ModelShape, tokens: int, position: int) -> Case:
    proj = memory.normal(tokens, shape.attention_columns)
    q = memory.activation(tokens, shape.q_heads, shape.head_dim)
    y = memory.empty_activation(tokens, shape.q_width)

    def record(step: native.Step) -> None:
        layer = attention_layer(memory, shape, proj, position + tokens)
        native.attention_prefill(step, y, q, layer, position)

    seen = tokens * position + tokens * (tokens + 1) // 2
    moved = 2 * (position + tokens) * shape.kv_width * 2
    size = f"{tokens} at {position:,}"
    sizes = (tokens, position)
    return Case("attention", "prefill", size, moved, 4 * seen * shape.q_width, record, sizes=sizes)


def _rope(memory: Memory, shape: ModelShape, tokens: int) -> Case:
    q = memory.empty_activation(tokens, shape.q_heads, shape.head_dim)

    def record(step: native.Step) -> None:
        proj = memory.cut("f32", tokens, shape.attention_columns)
        native.rope_append(step, q, attention_layer(memory, shape, proj, tokens), 0)

    # Reads q, k and v in fp32; writes q as an activation, and k and v in bf16.
    values = shape.q_width * (_VALUES + memory.activation_bytes)
    values += 2 * shape.kv_width * (_VALUES + 2)
    moved = tokens * values
    return Case("rope", "append", f"{tokens} tokens", moved, 0, record, sizes=(tokens,))


def _delta(memory: Memory, shape: ModelShape, tokens: int) -> list[Case]:
    proj = memory.normal(tokens, shape.delta_columns)
    qkv = memory.normal(tokens, shape.channels, scale=shape.key_dim**-0.5)
    # Decay and beta, both in (0, 1).
    gates = memory.tensor(
        memory.random().uniform(0.1, 0.9, (tokens, 2, shape.value_heads)).astype(np.float32)
    )
    out_qkv, out_gates = (
        memory.empty(tokens, shape.channels), memory.empty(tokens, 2, shape.value_heads)
    )  # fmt: skip
    y = memory.empty_activation(tokens, shape.value_width)
    extents = (shape.value_heads, shape.value_dim, shape.key_dim)

    def conv(step: native.Step) -> None:
        rows = memory.cut("f32", tokens, shape.delta_columns)
        layer = delta_layer(memory, shape, rows, memory.cut("f32", *extents))
        native.delta_conv(step, out_qkv, out_gates, layer, 0)

    def chunk(step: native.Step) -> None:
        layer = delta_layer(memory, shape, proj, memory.cut("f32", *extents))
        native.delta_chunk(step, y, qkv, gates, layer)

    size = f"{tokens} x {shape.value_heads} x {shape.value_dim}x{shape.key_dim}"
    state = int(np.prod(extents))
    return [
        Case("delta", "conv", f"{tokens} x {shape.channels}",
             2 * tokens * shape.channels * _VALUES, 0, conv, sizes=(tokens,)),
        Case("delta", "chunk", size, 2 * state * _VALUES, 6 * tokens * state, chunk,
             sizes=(tokens,)),
    ]  # fmt: skip


def _score(memory: Memory, shape: ModelShape, tokens: int) -> Case:
    targets = memory.tensor(np.arange(tokens, dtype=np.uint32))
    logprobs, best = memory.empty(tokens), memory.empty(tokens, dtype="u32")

    def record(step: native.Step) -> None:
        logits = memory.cut("f32", tokens, shape.vocab)
        native.sample_score(step, logprobs, best, logits, targets)

    moved = tokens * shape.vocab * _VALUES
    size = f"{tokens} x {shape.vocab:,}"
    return Case("sample", "score", size, moved, 0, record, sizes=(tokens,))
