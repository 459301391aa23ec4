"""Planted faults in what runs on matrix units whose lanes are known. Data only."""

from __future__ import annotations

from metal.mutations import Fault
from metal.mutations_rows import BARRIER, BOUNDS, NUMBERS, RACE, SIMD_BARRIER, removed


def digits(name: str, text: str, becomes: str, notice: tuple[str, ...] = NUMBERS) -> Fault:
    """In digits.h."""
    return Fault(f"digits-{name}", "digits.h", text, becomes, "digits", notice)


def lanes(name: str, text: str, becomes: str, notice: tuple[str, ...] = NUMBERS) -> Fault:
    """In attention_lanes.metal."""
    file = "attention_lanes.metal"
    return Fault(f"lanes-{name}", file, text, becomes, "attention_lanes", notice)


LANE_FAULTS = [
    digits("swapped", "d == 1 ? 0x51u : 0x62u", "d == 1 ? 0x62u : 0x51u"),
    digits(
        "odd-before-even",
        "uint2(pick_bytes(low, high, 0x6420)",
        "uint2(pick_bytes(low, high, 0x7531)",
    ),
    digits("exponent-of-one-lane", "top = fmax(top, simd_shuffle_xor(top, apart));", ""),
    digits(
        "wrong-scale",
        "second ? pair & 0xFFFF0000u : pair << 16",
        "second ? pair << 16 : pair & 0xFFFF0000u",
    ),
    digits("wrong-group", "digits.factors[step * 2 + t / 2]", "digits.factors[step * 2]"),
    digits("bias-twice", "with_bias = t % 2 ? 0.0f : 1.0f", "with_bias = 1.0f"),
    digits("planes-overlap", "kPlaneBytes = 144", "kPlaneBytes = 112", (*RACE, *NUMBERS)),
    removed(
        "digits-no-simdgroup-barrier",
        "digits.h",
        "stage_slice<S, STEPS>(source, column, digits, lane);\n    ",
        SIMD_BARRIER,
        "digits",
    ),
    removed("digits-no-barrier", "digits.h", "kPitch + kRows] = squares;\n    ", BARRIER, "digits"),
    Fault(
        "digits-row-past-the-end",
        "linear_digits.metal",
        "min(first + n, rows - 1)",
        "first + n",
        "digits",
        BOUNDS,
    ),
    Fault(
        "digits-segment-too-late",
        "linear_digits.metal",
        "group >= begin",
        "group > begin",
        "digits",
        (*NUMBERS, *BOUNDS),
    ),
    Fault(
        "digits-norm-not-applied",
        "linear_digits.metal",
        "NORM ? total * gemv.rms_factor(p.cols, p.eps) : total",
        "total",
        "digits",
        NUMBERS,
    ),
    Fault(
        "moe-digits-up-of-another",
        "moe_digits.metal",
        "simd_shuffle_xor(total, kTileCodes)",
        "simd_shuffle_xor(total, 1)",
        "moe_digits",
        NUMBERS,
    ),
    Fault(
        "moe-digits-weight-of-first-slot",
        "moe_digits.metal",
        "weight = weights[pieces.slot];",
        "weight = weights[0];",
        "moe_digits",
        NUMBERS,
    ),
    Fault(
        "moe-digits-no-second-barrier",
        "moe_digits.metal",
        "    }\n    simdgroup_barrier(mem_flags::mem_threadgroup);\n",
        "    }\n",
        "moe_digits",
        RACE,
    ),
    Fault(
        "tile-high-half-lost",
        "lane_tile_any.h",
        "dot_words(left.x, low, C()) + dot_words(left.z, high, C())",
        "dot_words(left.x, low, C())",
        "digits",
        NUMBERS,
    ),
    lanes(
        "newest-not-taken",
        "has_newest && first + Shape::kBlock > position",
        "false",
        (*RACE, *NUMBERS),
    ),
    lanes("newest-one-late", "r * 8 + lane / 4 < newest", "r * 8 + lane / 4 <= newest"),
    lanes("mask-one-too-many", "from + lane / 4 + 8 < end", "from + lane / 4 + 8 <= end"),
    lanes("not-rescaled", "sums[s][j][2 + i] *= factor;", "sums[s][j][2 + i] *= 1.0f;"),
    lanes(
        "weights-not-transposed",
        "transpose_halves(pack(weights[0], weights[1]))",
        "pack(weights[0], weights[1])",
    ),
    lanes("total-of-one-lane", "total += simd_shuffle_xor(total, apart);", "total += total;"),
    removed(
        "lanes-no-barrier",
        "attention_lanes.metal",
        "rows[kRows + at] = total;\n  }\n  ",
        BARRIER,
        "attention_lanes",
    ),
]
