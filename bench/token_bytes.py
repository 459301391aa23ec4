"""What each kernel of a decode step must move: weights, cache and state, in the order of the step.

The order is that of `Forward::record_decode`, which `lily.estimate` lists and a test of it holds
against the source; the bytes are those of the single kernels in `bench.kernel_cases`. A step may
launch something else on a device that is not known here: then there are no such bytes to show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lily import estimate
from lily._native import kernels as native

from bench.kernel_cases import SAMPLE_BLOCK_BYTES, SAMPLE_BLOCK_ROWS, router_storage
from bench.kernel_memory import row_bytes
from bench.shapes import ModelShape

_PART_TOKENS = 64  # kAttentionSplitTokens of metal/params.h


@dataclass(frozen=True)
class Stage:
    """One operation of the step."""

    operation: str  # as in src/ops
    part: str  # of the model
    moved_bytes: int


def decode_stages(shape: ModelShape, context: int, storage: str = "q4") -> list[Stage]:
    """All operations of a token after `context` others, in order."""
    once = {name: Stage(name, "once", size) for name, size in _once(shape, storage).items()}
    experts = _experts(shape, storage)
    mixers = (_delta(shape, storage), _attention(shape, storage, context))
    embed, *last = estimate.ONCE
    found = [once[embed]]
    for layer in range(shape.layers):
        is_attention = shape.is_attention(layer)
        part = "attention" if is_attention else "delta net"
        sizes = mixers[is_attention]
        operations = estimate.ATTENTION if is_attention else estimate.DELTA
        found += [Stage(name, part, sizes[name]) for name in operations]
        found += [Stage(name, "experts", experts[name]) for name in estimate.EXPERTS]
    return [*found, *(once[name] for name in last)]


def align(kernels: Sequence[str], stages: Sequence[Stage]) -> str:
    """Empty where the kernels are the stages, one each and in order; else what differs."""
    if len(kernels) != len(stages):
        return f"{len(kernels)} kernels ran, {len(stages)} operations are known"
    for place, (kernel, stage) in enumerate(zip(kernels, stages, strict=True)):
        # A product with a row has the name of its operation with "gemv" in it.
        if not re.sub("_gemv_", "_", kernel).startswith(f"{stage.operation}_"):
            return f"kernel {place} is '{kernel}', expected one of '{stage.operation}'"
    return ""


def _once(shape: ModelShape, storage: str) -> dict[str, int]:
    blocks = -(-shape.vocab // SAMPLE_BLOCK_ROWS)
    return {
        "embed_rows": row_bytes(storage, shape.hidden) + 4 * shape.hidden,
        "sample_logits": shape.vocab * row_bytes(storage, shape.hidden),
        "sample_draw": blocks * SAMPLE_BLOCK_BYTES,
    }


def _delta(shape: ModelShape, storage: str) -> dict[str, int]:
    return {
        "linear_norm": shape.delta_columns * row_bytes(storage, shape.hidden),
        # fp32, read and written.
        "delta_step": 2 * 4 * shape.value_heads * shape.value_dim * shape.key_dim,
        "linear_add": shape.hidden * row_bytes(storage, shape.value_width),
    }


def _attention(shape: ModelShape, storage: str, context: int) -> dict[str, int]:
    parts = min(native.ATTENTION_MAX_SPLITS, -(-context // _PART_TOKENS))
    return {
        "linear_norm": shape.attention_columns * row_bytes(storage, shape.hidden),
        "attention_decode": 2 * 2 * context * shape.kv_width,  # keys and values, bf16
        "attention_merge": 4 * shape.q_heads * parts * (shape.head_dim + 2),
        "linear_add": shape.hidden * row_bytes(storage, shape.q_width),
    }


def _experts(shape: ModelShape, storage: str) -> dict[str, int]:
    row, router = row_bytes(storage, shape.hidden), router_storage(storage)
    routers = (shape.experts + 1) * row_bytes(router, shape.hidden)
    down = shape.slots * row_bytes(storage, shape.width) + row_bytes(storage, shape.shared_width)
    return {
        "moe_router": routers + 2 * shape.shared_width * row,
        "moe_gate_up": 2 * shape.slots * shape.width * row,
        "moe_down": shape.hidden * down,
    }
