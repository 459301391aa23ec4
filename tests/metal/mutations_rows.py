"""Planted faults in norm, embed, rope, linear and sample. Data only."""

from __future__ import annotations

from metal.mutations import Fault

RACE, NUMBERS, BOUNDS = ("race",), ("numbers",), ("bounds",)
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
SIMD_BARRIER = "simdgroup_barrier(mem_flags::mem_threadgroup);\n"


def removed(name: str, file: str, before: str, barrier: str, check: str) -> Fault:
    """A barrier that is not there, after the code that tells which."""
    return Fault(name, file, before + barrier, before, check, RACE)


NORM = [
    removed("norm-no-barrier", "norm.metal", "partial[simdgroup] = squares;\n  ", BARRIER, "norm"),
    Fault(
        "norm-eps-into-sum",
        "norm.metal",
        "total / float(p.hidden) + p.eps",
        "(total + p.eps) / float(p.hidden)",
        "norm",
        NUMBERS,
    ),
    Fault(
        "norm-one-too-far",
        "norm.metal",
        "i < p.hidden; i += kNormThreads) {\n    y[row + i]",
        "i <= p.hidden; i += kNormThreads) {\n    y[row + i]",
        "norm",
        BOUNDS,
    ),
    Fault(
        "norm-half-a-group",
        "norm.metal",
        "LILY_KERNEL(norm_rms_bf16, 256,",
        "LILY_KERNEL(norm_rms_bf16, 128,",
        "norm",
        ("launch",),
    ),
    Fault(
        "norm-short-array",
        "norm.metal",
        "LILY_THREADGROUP(float, partial, kNormSimdgroups)",
        "LILY_THREADGROUP(float, partial, kNormSimdgroups - 1)",
        "norm",
        BOUNDS,
    ),
    Fault(
        "norm-too-much-memory",
        "norm.metal",
        "LILY_THREADGROUP(float, partial, kNormSimdgroups)",
        "LILY_THREADGROUP(float, partial, 12289)",
        "norm",
        ("memory",),
    ),
    Fault(
        "norm-wrong-stride",
        "norm.metal",
        "i += kNormThreads) {\n    const float value",
        "i += kNormThreads / 2) {\n    const float value",
        "norm",
        NUMBERS,
    ),
]

EMBED = [
    Fault("embed-first-id", "embed.metal", "ids[group.x]", "ids[0]", "embed", NUMBERS),
    Fault(
        "embed-scale-and-bias-swapped",
        "weights.h",
        "return fma(float(row.scales[g]), code - S::offset(0), float(row.biases[g]));",
        "return fma(float(row.biases[g]), code - S::offset(0), float(row.scales[g]));",
        "embed",
        NUMBERS,
    ),
    Fault(
        "embed-32-bit-offset",
        "weights.h",
        "matrix.weight + row * row_bytes<S>(matrix.cols)",
        "matrix.weight + uint(row * row_bytes<S>(matrix.cols))",
        "embed_far",
        NUMBERS,
    ),
]

ROPE = [
    Fault(
        "rope-interleaved-pairs",
        "heads.h",
        "const float a = row[i], b = row[i + rotary / 2];\n"
        "      row[i] = a * turns[n].x - b * turns[n].y;\n"
        "      row[i + rotary / 2] = b",
        "const float a = row[2 * i], b = row[2 * i + 1];\n"
        "      row[2 * i] = a * turns[n].x - b * turns[n].y;\n"
        "      row[2 * i + 1] = b",
        "rope",
        NUMBERS,
    ),
    removed(
        "rope-no-simdgroup-barrier",
        "heads.h",
        "place(value, lane, row);\n    ",
        SIMD_BARRIER,
        "rope",
    ),
    Fault(
        "rope-v-one-token-late",
        "rope.metal",
        "v_cache[at + i] =",
        "v_cache[at + p.head_dim + i] =",
        "rope",
        NUMBERS,
    ),
    Fault(
        "rope-strides-swapped",
        "rope.metal",
        "q + (ulong(t) * p.q_heads + head) * p.head_dim",
        "q + (ulong(head) * p.tokens + t) * p.head_dim",
        "rope",
        NUMBERS,
    ),
    Fault(
        "rope-a-lane-leaves",
        "rope.metal",
        "if (index >= p.q_heads + p.kv_heads) return;",
        "if (index >= p.q_heads + p.kv_heads || lane == 31) return;",
        "rope",
        ("divergence",),
    ),
]

LINEAR = [
    removed(
        "gemv-no-barrier",
        "weights.h",
        "columns, memory.slab, thread_index);\n    }\n    ",
        BARRIER,
        "gemv",
    ),
    removed(
        "gemv-no-barrier-before-restaging",
        "weights.h",
        "ahead.load(rows, matrix, first, columns, split, lane);\n      ",
        BARRIER,
        "gemv_split",
    ),
    Fault(
        "gemv-next-lane",
        "weights.h",
        "staged + (j * kLanes + lane) * 4",
        "staged + (j * kLanes + (lane + 1) % kLanes) * 4",
        "gemv",
        NUMBERS,
    ),
    Fault(
        "gemv-high-nibble-first",
        "weights.h",
        "return i % 2 ? as_type<float>",
        "return i % 2 == 0 ? as_type<float>",
        "gemv",
        NUMBERS,
    ),
    Fault(
        "gemv-no-last-step",
        "weights.h",
        "step * kStep < columns",
        "(step + 1) * kStep <= columns",
        "gemv",
        NUMBERS,
    ),
    Fault(
        "gemv-rows-past-the-end",
        "linear.metal",
        "    if (first + r >= total) continue;\n",
        "",
        "gemv",
        BOUNDS,
    ),
    Fault(
        "gemv-segment-boundary",
        "segments.h",
        "n >= first + rows",
        "n > first + rows",
        "gemv",
        NUMBERS,
    ),
    Fault("gemv-residual-lost", "linear.metal", "*to + acc[r]", "acc[r]", "gemv", NUMBERS),
    Fault(
        "gemv-last-split-lost",
        "weights.h",
        "for (uint s = 0; s < SPLITS; ++s)",
        "for (uint s = 0; s + 1 < SPLITS || s == 0; ++s)",
        "gemv_split",
        NUMBERS,
    ),
    removed("gemm-no-barrier", "gemm.h", "step.stage(mine, thread_index);\n    ", BARRIER, "gemm"),
    Fault("gemm-no-second-half", "gemm.h", "turn ^= 1", "turn ^= 0", "gemm", RACE),
    removed(
        "gemm-no-simdgroup-barrier",
        "gemm.h",
        "sums.store_band(band, 0, Shape::WN, patch, Shape::kPatchPitch);\n    ",
        SIMD_BARRIER,
        "gemm",
    ),
    Fault(
        "gemm-scale-and-bias-swapped",
        "gemm.h",
        "fma(unit.scale, value - S::offset(code), unit.bias)",
        "fma(unit.bias, value - S::offset(code), unit.scale)",
        "gemm",
        NUMBERS,
    ),
    Fault(
        "gemm-rows-past-the-end",
        "linear_gemm.h",
        "    if (first_row + m >= tokens) return;\n",
        "",
        "gemm",
        BOUNDS,
    ),
    Fault(
        "gemm-short-activations",
        "linear_gemm.h",
        "ulong(min(first_row + m, p->tokens - 1))",
        "ulong(first_row + m)",
        "gemm",
        BOUNDS,
    ),
    Fault(
        "gemm-wrong-lane",
        "linear_gemm.h",
        ": row[i + lane];",
        ": row[i + (lane ^ 1)];",
        "gemm",
        NUMBERS,
    ),
    Fault(
        "tile-not-transposed",
        "tile_apple.h",
        "stride, ulong2(0, 0), true)",
        "stride, ulong2(0, 0), false)",
        "gemm",
        NUMBERS,
    ),
]

FEW = [
    removed(
        "few-no-barrier",
        "few_rows.h",
        "slab[m * kFewSlab + staged_place<S>(k)] = x[k];\n      }\n    }\n    ",
        BARRIER,
        "few",
    ),
    removed(
        "few-no-barrier-before-restaging",
        "few_rows.h",
        "min(matrix.cols - first, uint(kFewSlab));\n    ",
        "if (first > 0) " + BARRIER,
        "few",
    ),
    Fault(
        "few-short-activations",
        "few_rows.h",
        "source.activation(min(uint(m), count - 1))",
        "source.activation(uint(m))",
        "few",
        BOUNDS,
    ),
    Fault(
        "few-swapped-halves",
        "few_rows.h",
        "as_type<float>(words.x << 16), as_type<float>(words.x & 0xFFFF0000u)",
        "as_type<float>(words.x & 0xFFFF0000u), as_type<float>(words.x << 16)",
        "few",
        NUMBERS,
    ),
]

SAMPLE = [
    Fault(
        "sample-tie-to-higher-id",
        "candidates.h",
        "a.logit == b.logit && a.id < b.id",
        "a.logit == b.logit && a.id > b.id",
        "sample_logits",
        NUMBERS,
    ),
    Fault(
        "sample-merge-loses-candidates",
        "candidates.h",
        "shuffle_candidate(other[N - 1 - n], ushort(kLanes - 1))",
        "other[n]",
        "sample_logits",
        NUMBERS,
    ),
    removed(
        "sample-merge-no-barrier",
        "candidates.h",
        "list[n * kLanes + lane] = best[n];\n    }\n    ",
        BARRIER,
        "sample_logits",
    ),
    Fault(
        "sample-vocab-past-the-end",
        "sample.metal",
        "const bool there = first + i < vocab;",
        "const bool there = first + i < vocab + 1;",
        "sample_logits",
        BOUNDS,
    ),
    Fault("sample-philox-round", "sample.metal", "round < 10", "round < 9", "sample_draw", NUMBERS),
    Fault(
        "draw-ties-to-later-blocks",
        "sample.metal",
        "b + i < thread_index",
        "b + i > thread_index",
        "sample_draw",
        NUMBERS,
    ),
    removed(
        "draw-ranks-no-barrier",
        "sample.metal",
        "order[thread_index] = kNoToken;\n  ",
        BARRIER,
        "sample_draw",
    ),
    removed(
        "draw-no-barrier",
        "sample.metal",
        "* exp(own_top - top) : 0.0f);\n  ",
        BARRIER,
        "sample_draw",
    ),
    Fault(
        "sample-sum-not-rescaled",
        "sample.metal",
        "own_sum * exp(own_top - top)",
        "own_sum",
        "sample_draw",
        NUMBERS,
    ),
    Fault(
        "sample-nucleus-too-small",
        "sample.metal",
        "float mass = weights[0];\n    uint smallest = 1;",
        "float mass = weights[0] + weights[1];\n    uint smallest = 1;",
        "sample_draw",
        NUMBERS,
    ),
    removed(
        "score-no-barrier",
        "sample.metal",
        "if (lane == 0) winners[simdgroup] = top;\n  ",
        BARRIER,
        "sample_score",
    ),
    Fault(
        "score-wrong-row",
        "sample.metal",
        "logits + ulong(group.x) * p.vocab",
        "logits + ulong(group.x) * (p.vocab - 1)",
        "sample_score",
        NUMBERS,
    ),
]

ROW_FAULTS = NORM + EMBED + ROPE + LINEAR + FEW + SAMPLE
