"""The work of each of Lily's kernels, done by PyTorch: what a user of it would call.

A peer may do less than the kernel (then its label says what it leaves out), never more. Weights are
dense bf16 unless the label says int4. Knows no device and no clock: see gpu_torch.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.attention.bias import causal_lower_right

from bench.gpu_torch import Lab
from bench.kernel_cases import Case
from bench.shapes import ModelShape

GROUP = 64


@dataclass(frozen=True)
class Peer:
    """One way to do the work: call(i) works on the i-th of `copies` sets of inputs."""

    label: str
    make: Callable[[], tuple[Callable[[int], object], int]]


def peers(lab: Lab, shape: ModelShape, case: Case) -> list[Peer]:
    """All peers of a case; none where PyTorch has nothing like it."""
    makers = {
        "linear_gemv_norm": _gemv,
        "linear_gemv_add": _gemv,
        "linear_gemm": _gemm,
        "linear_gemm_add": _gemm,
        "sample_logits": _logits,
        "attention_decode": _attention_decode,
        "attention_prefill": _attention_prefill,
        "moe_router": _router,
        "moe_gate_up": _experts_decode,
        "moe_down": _experts_decode,
        "moe_grouped_gate_up": _grouped,
        "moe_grouped_down": _grouped,
        "moe_route": _route,
        "moe_sort": _sort,
        "moe_combine": _combine,
        "delta_step": _delta_step,
        "delta_conv": _delta_conv,
        "norm_rms": _norm,
        "embed_rows": _embed,
        "sample_score": _score,
    }
    maker = makers.get(f"{case.family}_{case.kernel}")
    return list(maker(lab, shape, case)) if maker else []


def _dense(lab: Lab, x: torch.Tensor, rows: int, cols: int) -> tuple[Callable[[int], object], int]:
    copies = lab.copies(2 * rows * cols)
    weights = [lab.random(rows, cols) for _ in range(copies)]
    return lambda i: F.linear(x, weights[i]), copies


def _int4(lab: Lab, x: torch.Tensor, rows: int, cols: int) -> tuple[Callable[[int], object], int]:
    """tinygemm, as torchao uses it: the same codes, scales and zeros, in its own packing."""
    copies = lab.copies(rows * cols // 2)
    factors = [lab.random(cols // GROUP, rows, 2) for _ in range(copies)]
    packed = []
    for _ in range(copies):
        if lab.is_gpu:
            codes = lab.ids(256, rows, cols // 2, dtype=torch.uint8)
            packed.append(torch._convert_weight_to_int4pack(codes, 8))
        else:
            codes = lab.ids(16, rows, cols, dtype=torch.int32)
            packed.append(torch._convert_weight_to_int4pack_for_cpu(codes, 1))
    multiply = torch._weight_int4pack_mm if lab.is_gpu else torch._weight_int4pack_mm_for_cpu
    return lambda i: multiply(x, packed[i], GROUP, factors[i]), copies


def _triton_int4(
    lab: Lab, x: torch.Tensor, rows: int, cols: int
) -> tuple[Callable[[int], object], int]:
    """On Lily's own layout of the weights."""
    from bench.gpu_triton import gemv_int4

    copies = lab.copies(rows * cols // 2)
    codes = [lab.ids(2**31 - 1, rows, cols // 8, dtype=torch.int32) for _ in range(copies)]
    factors = [[lab.random(rows, cols // GROUP) for _ in "sb"] for _ in range(copies)]
    return lambda i: gemv_int4(codes[i], *factors[i], x[0]), copies


def _gemv(lab: Lab, _shape: ModelShape, case: Case) -> Iterator[Peer]:
    _, rows, cols = case.sizes
    x = lab.random(1, cols)
    yield Peer("triton int4 gemv", lambda: _triton_int4(lab, x, rows, cols))
    yield Peer("torch int4 matmul", lambda: _int4(lab, x, rows, cols))
    yield Peer("torch bf16 matmul", lambda: _dense(lab, x, rows, cols))


def _gemm(lab: Lab, _shape: ModelShape, case: Case) -> Iterator[Peer]:
    tokens, rows, cols = case.sizes
    x = lab.random(tokens, cols)
    yield Peer("torch bf16 matmul", lambda: _dense(lab, x, rows, cols))


def _logits(lab: Lab, _shape: ModelShape, case: Case) -> Iterator[Peer]:
    _, rows, cols = case.sizes
    x = lab.random(1, cols)

    def with_candidates() -> tuple[Callable[[int], object], int]:
        product, copies = _int4(lab, x, rows, cols)

        def call(i: int) -> object:
            logits = product(i).float()
            return torch.topk(logits, 64), torch.logsumexp(logits, -1)

        return call, copies

    yield Peer("torch int4 matmul, topk, logsumexp", with_candidates)
    yield Peer("triton int4 gemv", lambda: _triton_int4(lab, x, rows, cols))
    yield Peer("torch int4 matmul", lambda: _int4(lab, x, rows, cols))
    yield Peer("torch bf16 matmul", lambda: _dense(lab, x, rows, cols))


def _caches(lab: Lab, shape: ModelShape, tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    extents = (1, shape.kv_heads, tokens, shape.head_dim)
    copies = lab.copies(4 * tokens * shape.kv_width)
    return [(lab.random(*extents), lab.random(*extents)) for _ in range(copies)]


def _attention_decode(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    def make() -> tuple[Callable[[int], object], int]:
        caches = _caches(lab, shape, case.sizes[1])
        q = lab.random(1, shape.q_heads, 1, shape.head_dim)
        return lambda i: F.scaled_dot_product_attention(q, *caches[i], enable_gqa=True), len(caches)

    yield Peer("torch sdpa", make)


def _attention_prefill(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    tokens, position = case.sizes

    def make() -> tuple[Callable[[int], object], int]:
        caches = _caches(lab, shape, position + tokens)
        q = lab.random(1, shape.q_heads, tokens, shape.head_dim)
        if position == 0:
            return lambda i: F.scaled_dot_product_attention(
                q, *caches[i], is_causal=True, enable_gqa=True
            ), len(caches)
        mask = causal_lower_right(tokens, position + tokens)
        groups = shape.q_heads // shape.kv_heads
        wide = [tuple(t.repeat_interleave(groups, 1) for t in cache) for cache in caches[:2]]
        return lambda i: F.scaled_dot_product_attention(q, *wide[i], attn_mask=mask), len(wide)

    yield Peer("torch sdpa", make)


def _router(lab: Lab, shape: ModelShape, _case: Case) -> Iterator[Peer]:
    rows = shape.experts + 1 + 2 * shape.shared_width
    x = lab.random(1, shape.hidden)

    def make() -> tuple[Callable[[int], object], int]:
        product, copies = _dense(lab, x, rows, shape.hidden)

        def call(i: int) -> object:
            y = product(i)
            shared = y[:, shape.experts + 1 :]
            return F.silu(shared[:, : shape.shared_width]) * shared[:, shape.shared_width :]

        return call, copies

    yield Peer("torch bf16 matmul, swiglu", make)


def _experts_decode(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    """The chosen experts gathered, then one batched product."""
    is_down = case.kernel == "down"
    rows = shape.hidden if is_down else 2 * shape.width
    cols = shape.width if is_down else shape.hidden

    def make() -> tuple[Callable[[int], object], int]:
        stack = lab.random(shape.experts, rows, cols)
        choices = [lab.ids(shape.experts, shape.slots) for _ in range(16)]
        x = lab.random(shape.slots, cols, 1)
        weights = lab.random(shape.slots, 1)

        def call(i: int) -> object:
            y = torch.bmm(stack[choices[i]], x)[:, :, 0]
            if is_down:
                return (y * weights).sum(0)
            return F.silu(y[:, : shape.width]) * y[:, shape.width :]

        return call, len(choices)

    yield Peer("torch bf16 index, bmm", make)


def _grouped(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    (tokens,) = case.sizes
    is_down, slots = case.kernel == "grouped_down", shape.slots
    rows = shape.hidden if is_down else 2 * shape.width
    cols = shape.width if is_down else shape.hidden

    def make() -> tuple[Callable[[int], object], int]:
        chosen = torch.rand(tokens, shape.experts, device=lab.device).topk(slots, 1).indices
        order = torch.argsort(chosen.flatten(), stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=shape.experts)
        ends = counts.cumsum(0).to(torch.int32)
        copies = lab.copies(2 * shape.experts * rows * cols)
        stacks = [lab.random(shape.experts, rows, cols).transpose(1, 2) for _ in range(copies)]
        x = lab.random(tokens * slots if is_down else tokens, cols)
        source = order // slots

        def call(i: int) -> object:
            if is_down:
                y = torch._grouped_mm(x, stacks[i], ends)
                return torch.empty_like(y).index_copy_(0, order, y)
            y = torch._grouped_mm(x[source], stacks[i], ends)
            return F.silu(y[:, : shape.width]) * y[:, shape.width :]

        return call, copies

    yield Peer("torch bf16 grouped_mm, index", make)


def _route(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    logits = lab.random(case.sizes[0], shape.experts, dtype=torch.float32)

    def call(_: int) -> object:
        values, ids = torch.topk(logits, shape.slots)
        return ids, torch.softmax(values, -1)

    yield Peer("torch topk, softmax", lambda: (call, 1))


def _sort(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    ids = lab.ids(shape.experts, case.sizes[0] * shape.slots, dtype=torch.int32)
    edges = torch.arange(shape.experts + 1, device=lab.device, dtype=torch.int32)

    def call(_: int) -> object:
        found, order = torch.sort(ids, stable=True)
        return order, torch.searchsorted(found, edges)

    yield Peer("torch sort, searchsorted", lambda: (call, 1))


def _combine(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    (tokens,) = case.sizes

    def make() -> tuple[Callable[[int], object], int]:
        extents = (tokens, shape.slots, shape.hidden)
        copies = lab.copies(4 * tokens * shape.slots * shape.hidden)
        ys = [lab.random(*extents, dtype=torch.float32) for _ in range(copies)]
        weights = lab.random(tokens, 1, shape.slots, dtype=torch.float32)
        residual = lab.random(tokens, shape.hidden, dtype=torch.float32)
        return lambda i: residual.add_(torch.bmm(weights, ys[i])[:, 0]), copies

    yield Peer("torch fp32 bmm, add, without the shared expert", make)


def _delta_step(lab: Lab, shape: ModelShape, _case: Case) -> Iterator[Peer]:
    """The recurrence alone: no convolution, gates, norms."""
    heads, dv, dk = shape.value_heads, shape.value_dim, shape.key_dim
    fp32 = torch.float32

    def states() -> list[torch.Tensor]:
        copies = lab.copies(4 * heads * dv * dk)
        return [lab.random(heads, dv, dk, dtype=fp32) for _ in range(copies)]

    q, k = (F.normalize(lab.random(heads, dk, dtype=fp32), dim=1) for _ in "qk")
    v = lab.random(heads, dv, dtype=fp32)
    decay, beta = (torch.rand(heads, device=lab.device) for _ in "gb")

    def in_torch() -> tuple[Callable[[int], object], int]:
        memories = states()
        key, query, value = k[:, :, None], q[:, :, None], v[:, :, None]

        def call(i: int) -> object:
            state = memories[i].mul_(decay[:, None, None])
            delta = beta[:, None, None] * (value - torch.bmm(state, key))
            state.baddbmm_(delta, key.transpose(1, 2))
            return torch.bmm(state, query)

        return call, len(memories)

    def in_triton() -> tuple[Callable[[int], object], int]:
        from bench.gpu_triton import delta_step

        memories = states()
        return lambda i: delta_step(memories[i], q, k, v, decay, beta), len(memories)

    yield Peer("triton fp32, the recurrence alone", in_triton)
    yield Peer("torch fp32 bmm, the recurrence alone", in_torch)


def _delta_conv(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    (tokens,) = case.sizes

    def make() -> tuple[Callable[[int], object], int]:
        copies = lab.copies(4 * tokens * shape.channels)
        width = shape.conv_width
        inputs = [
            lab.random(1, shape.channels, tokens + width - 1, dtype=torch.float32)
            for _ in range(copies)
        ]
        weight = lab.random(shape.channels, 1, width, dtype=torch.float32)
        return lambda i: F.silu(F.conv1d(inputs[i], weight, groups=shape.channels)), copies

    yield Peer("torch fp32 conv1d, silu, without norm and gates", make)


def _norm(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    (tokens,) = case.sizes

    def make() -> tuple[Callable[[int], object], int]:
        copies = lab.copies(4 * tokens * shape.hidden)
        inputs = [lab.random(tokens, shape.hidden, dtype=torch.float32) for _ in range(copies)]
        gain = lab.random(shape.hidden, dtype=torch.float32)
        return lambda i: F.rms_norm(inputs[i], (shape.hidden,), gain, 1e-6).bfloat16(), copies

    yield Peer("torch rms_norm, cast", make)


def _embed(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    table = lab.random(shape.vocab, shape.hidden)
    choices = [lab.ids(shape.vocab, case.sizes[0]) for _ in range(16)]
    yield Peer(
        "torch bf16 embedding, cast", lambda: (lambda i: F.embedding(choices[i], table).float(), 16)
    )


def _score(lab: Lab, shape: ModelShape, case: Case) -> Iterator[Peer]:
    (tokens,) = case.sizes

    def make() -> tuple[Callable[[int], object], int]:
        copies = lab.copies(4 * tokens * shape.vocab)
        rows = [lab.random(tokens, shape.vocab, dtype=torch.float32) for _ in range(copies)]
        targets = lab.ids(shape.vocab, tokens, 1)

        def call(i: int) -> object:
            return rows[i].gather(1, targets)[:, 0] - rows[i].logsumexp(-1), rows[i].argmax(-1)

        return call, copies

    yield Peer("torch logsumexp, gather, argmax", make)
