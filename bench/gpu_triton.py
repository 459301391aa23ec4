"""Kernels in Triton: two as one would write them in an hour, where PyTorch has no single call, and
one that keeps mma.sync busy and does nothing else.

The two work on the very layout that Lily's kernels read. Knows no clock.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"block_rows": rows, "block_words": words}, num_warps=warps)
        for rows, words, warps in ((4, 128, 4), (8, 64, 4), (8, 256, 8), (16, 64, 4), (2, 256, 4))
    ],
    key=["rows", "words"],
)
@triton.jit
def _gemv_int4(
    codes,
    scales,
    biases,
    x,
    y,
    rows,
    words: tl.constexpr,
    block_rows: tl.constexpr,
    block_words: tl.constexpr,
):
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    is_row = row < rows
    total = tl.zeros((block_rows,), tl.float32)
    for begin in range(0, words, block_words):
        word = begin + tl.arange(0, block_words)
        mask = is_row[:, None] & (word < words)[None, :]
        packed = tl.load(codes + row[:, None] * words + word[None, :], mask, other=0)
        group = row[:, None] * (words // 8) + (word // 8)[None, :]
        scale = tl.load(scales + group, mask, other=0).to(tl.float32)
        bias = tl.load(biases + group, mask, other=0).to(tl.float32)
        dot = tl.zeros((block_rows, block_words), tl.float32)
        x_sum = tl.zeros((block_words,), tl.float32)
        for i in tl.static_range(8):
            values = tl.load(x + word * 8 + i, word < words, other=0).to(tl.float32)
            dot += ((packed >> (4 * i)) & 15).to(tl.float32) * values[None, :]
            x_sum += values
        total += tl.sum(dot * scale + bias * x_sum[None, :], 1)
    tl.store(y + row, total, is_row)


def gemv_int4(
    codes: torch.Tensor, scales: torch.Tensor, biases: torch.Tensor, x: torch.Tensor
) -> torch.Tensor:
    """y = W x; codes int32 [rows, cols / 8], scales and biases bf16 [rows, cols / 64], x [cols]."""
    rows, words = codes.shape
    y = torch.empty(rows, device=x.device, dtype=torch.float32)
    _gemv_int4[lambda config: (triton.cdiv(rows, config["block_rows"]),)](
        codes, scales, biases, x, y, rows, words=words
    )
    return y


@triton.jit
def _delta_step(
    state, q, k, v, decay, beta, out, dk: tl.constexpr, dv: tl.constexpr, block_rows: tl.constexpr
):
    head = tl.program_id(0)
    row = tl.program_id(1) * block_rows + tl.arange(0, block_rows)
    col = tl.arange(0, dk)
    at = head * dv * dk + row[:, None] * dk + col[None, :]
    memory = tl.load(state + at) * tl.load(decay + head)
    key = tl.load(k + head * dk + col)
    seen = tl.sum(memory * key[None, :], 1)
    delta = tl.load(beta + head) * (tl.load(v + head * dv + row) - seen)
    memory += delta[:, None] * key[None, :]
    tl.store(state + at, memory)
    query = tl.load(q + head * dk + col)
    tl.store(out + head * dv + row, tl.sum(memory * query[None, :], 1))


def delta_step(
    state: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
) -> torch.Tensor:
    """One token of the recurrence; state fp32 [heads, dv, dk] is changed, the rest is by head."""
    heads, dv, dk = state.shape
    rows = min(16, dv)
    out = torch.empty(heads, dv, device=state.device, dtype=torch.float32)
    _delta_step[(heads, dv // rows)](
        state, q, k, v, decay, beta, out, dk=dk, dv=dv, block_rows=rows
    )
    return out


MMA_THREADS = 512  # of a program: 16 warps, 4 for each of a multiprocessor's matrix units
_MMA_SUMS = 8  # products that a warp has under way: the next begins before the last one ends
MMA_FLOPS = 2 * 16 * 8 * 16 * _MMA_SUMS  # of a warp in a turn of the loop


def _mma_loop() -> str:
    """PTX: $1 turns of products whose factors, the words $2 to $7, never leave registers."""
    sums = [", ".join(f"c{4 * n + i}" for i in range(4)) for n in range(_MMA_SUMS)]
    products = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{c}}}, {{$2, $3, $4, $5}}, "
        f"{{$6, $7}}, {{{c}}};"
        for c in sums
    )
    return "\n".join(
        [
            "{",
            f".reg .pred more; .reg .b32 left; .reg .f32 c<{4 * _MMA_SUMS}>;",
            "mov.b32 left, $1; mov.f32 $0, 0f00000000;",
            *(f"mov.f32 c{i}, 0f00000000;" for i in range(4 * _MMA_SUMS)),
            "again:",
            *products,
            "add.s32 left, left, -1; setp.ne.s32 more, left, 0; @more bra again;",
            *(f"add.f32 $0, $0, c{i};" for i in range(4 * _MMA_SUMS)),
            "}",
        ]
    )


_MMA_LOOP = tl.constexpr(_mma_loop())


@triton.jit
def _mma_sync(factors, out, turns, threads: tl.constexpr):
    thread = tl.arange(0, threads)
    left = tl.full((threads,), 0, tl.int32) + turns
    words = factors + thread
    total = tl.inline_asm_elementwise(
        _MMA_LOOP,
        "=f,r,r,r,r,r,r,r",
        [
            left,
            tl.load(words),
            tl.load(words + threads),
            tl.load(words + 2 * threads),
            tl.load(words + 3 * threads),
            tl.load(words + 4 * threads),
            tl.load(words + 5 * threads),
        ],
        dtype=tl.float32,
        is_pure=False,
        pack=1,
    )
    tl.store(out + tl.program_id(0) * threads + thread, total)


def mma_sync(factors: torch.Tensor, out: torch.Tensor, turns: int) -> None:
    """Multiply bf16 factors [6 * MMA_THREADS, 2]; one program for each MMA_THREADS of `out`."""
    programs = out.numel() // MMA_THREADS
    words = factors.view(torch.int32)
    _mma_sync[(programs,)](words, out, turns, threads=MMA_THREADS, num_warps=MMA_THREADS // 32)
