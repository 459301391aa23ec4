"""Planted faults in encoder. Data only."""

from __future__ import annotations

from metal.mutations import Fault
from metal.mutations_rows import BARRIER, BOUNDS, NUMBERS, RACE, SIMD_BARRIER, removed

ENCODER_FAULTS = [
    removed(
        "encoder-norm-no-barrier",
        "encoder.metal",
        "if (lane == 0) partial[simdgroup] = value;\n  ",
        BARRIER,
        "encoder_norm",
    ),
    Fault(
        "encoder-norm-same-partials",
        "encoder.metal",
        "sum_of_group(squares, partial + kEncoderSimdgroups, lane",
        "sum_of_group(squares, partial, lane",
        "encoder_norm",
        RACE,
    ),
    Fault(
        "encoder-norm-mean-kept",
        "encoder.metal",
        "fma((row[i] - mean) * factor",
        "fma(row[i] * factor",
        "encoder_norm",
        NUMBERS,
    ),
    Fault(
        "encoder-embed-first-form",
        "encoder.metal",
        "ulong(forms[group.x])",
        "ulong(forms[0])",
        "encoder_embed",
        NUMBERS,
    ),
    removed(
        "encoder-attention-keys-overtaken",
        "encoder.metal",
        "from += kKeys) {\n    ",
        BARRIER,
        "encoder_attention",
    ),
    removed(
        "encoder-attention-weights-overtaken",
        "encoder.metal",
        "highest[i] = top;\n    }\n    ",
        SIMD_BARRIER,
        "encoder_attention",
    ),
    Fault(
        "encoder-attention-padding-seen",
        "encoder.metal",
        "const bool visible = from + lane < end;",
        "const bool visible = true;",
        "encoder_attention",
        NUMBERS,
    ),
    Fault(
        "encoder-attention-no-rescale",
        "encoder.metal",
        "mixed[i] *= rescale;",
        "",
        "encoder_attention",
        NUMBERS,
    ),
    Fault(
        "encoder-attention-next-window",
        "encoder.metal",
        "const uint end = offsets[group.z + 1];",
        "const uint end = offsets[group.z + 1] + 1;",
        "encoder_attention",
        BOUNDS + NUMBERS,
    ),
    Fault(
        "encoder-gelu-one-side",
        "encoder.metal",
        "max(x, 0.0f) - 0.5f * size",
        "max(x, 0.0f) + 0.5f * size",
        "encoder_gelu",
        NUMBERS,
    ),
    Fault(
        "encoder-pool-last-row",
        "encoder.metal",
        "for (uint t = begin; t < end; ++t)",
        "for (uint t = begin + 1; t < end; ++t)",
        "encoder_pool",
        NUMBERS,
    ),
]
