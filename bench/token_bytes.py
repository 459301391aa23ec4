"""What each kernel of a step must move, in the order of the step.

Decode: weights, cache and state; the order is that of `Forward::record_decode`, which
`lily.estimate` lists, and the bytes are those of the single kernels in `bench.kernel_cases`.
Prefill: weights, all experts once; the order is that of `Forward::record_prefill`. Tests hold both
orders against the source. What a device launches besides is known by its family's name; where it
fits nowhere, there are no such bytes to show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lily import estimate
from lily._native import kernels as native

from bench.kernel_cases import SAMPLE_BLOCK_BYTES, SAMPLE_BLOCK_ROWS, router_storage
from bench.kernel_memory import row_bytes
from bench.shapes import ModelShape

_PART_TOKENS = 64  # kAttentionSplitTokens of metal/params.h

# What a chunk of a prompt dispatches: in a layer of each kind, and in every layer.
DELTA_PREFILL = ("norm_rms", "linear", "delta_conv", "delta_chunk", "linear_add")
ATTENTION_PREFILL = ("norm_rms", "linear", "rope_append", "attention_prefill", "linear_add")
_GROUPED = ("moe_grouped_gate_up", "moe_grouped_down")  # the routed experts, then the shared one
EXPERTS_PREFILL = (
    *("norm_rms", "linear", "moe_route", "moe_sort"),
    *(*_GROUPED, *_GROUPED, "moe_combine"),
)


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


def prefill_stages(shape: ModelShape, storage: str = "q4") -> list[Stage]:
    """All operations of a prompt that is one chunk, in order, with the logits behind it."""
    once, row = _once(shape, storage), row_bytes(storage, shape.hidden)
    weights = [
        (shape.experts + 1) * row_bytes(router_storage(storage), shape.hidden),
        2 * shape.experts * shape.width * row,
        shape.experts * shape.hidden * row_bytes(storage, shape.width),
        2 * shape.shared_width * row,
        shape.hidden * row_bytes(storage, shape.shared_width),
    ]
    embed, *last = estimate.ONCE
    found = [Stage(embed, "once", 0)]
    for layer in range(shape.layers):
        is_attention = shape.is_attention(layer)
        sizes = _attention(shape, storage, 0) if is_attention else _delta(shape, storage)
        mixer = {"linear": sizes["linear_norm"], "linear_add": sizes["linear_add"]}
        part = "attention" if is_attention else "delta net"
        operations = ATTENTION_PREFILL if is_attention else DELTA_PREFILL
        found += [Stage(name, part, mixer.get(name, 0)) for name in operations]
        left = iter(weights)
        found += [
            Stage(name, "experts", next(left) if name in ("linear", *_GROUPED) else 0)
            for name in EXPERTS_PREFILL
        ]
    return [*found, *(Stage(name, "once", once[name]) for name in last)]


def assign(kernels: Sequence[str], stages: Sequence[Stage]) -> list[Stage]:
    """For each kernel its stage; raises ValueError where kernels and stages are not in one order.

    A kernel that is not the next stage's belongs to the one before it, if it is of its family: it
    must move nothing that was not counted there.
    """
    found: list[Stage] = []
    begun = 0
    for place, kernel in enumerate(kernels):
        # The kernel of a product names its kind after the family: "linear_gemv_norm_q4".
        name = re.sub("_gem[mv]", "", kernel) + "_"
        following = stages[begun] if begun < len(stages) else None
        if following and name.startswith(f"{following.operation}_"):
            found.append(following)
            begun += 1
        elif found and name.split("_")[0] == found[-1].operation.split("_")[0]:
            found.append(replace(found[-1], moved_bytes=0))
        else:
            wanted = f"'{following.operation}'" if following else "no more"
            raise ValueError(f"kernel {place} is '{kernel}', expected {wanted}")
    if begun < len(stages):
        raise ValueError(f"the kernels end before '{stages[begun].operation}'")
    return found


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
