"""Planted faults in prefill's kernels that know the lanes of matrix units. Data only."""

from __future__ import annotations

from metal.mutations import Fault
from metal.mutations_rows import BARRIER, BOUNDS, NUMBERS, RACE, removed

PREFILL_FAULTS = [
    removed(
        "gemm-lanes-no-barrier",
        "gemm_lanes.h",
        "wait_for_copies<kAhead - 1>();\n    ",
        BARRIER,
        "gemm_lanes",
    ),
    Fault(
        "gemm-lanes-one-stage-short",
        "gemm_lanes.h",
        "turn = turn == kAhead ? 0",
        "turn = turn + 1 == kAhead ? 0",
        "gemm_lanes",
        (*RACE, *NUMBERS),
    ),
    Fault(
        "gemm-lanes-code-mask",
        "gemm_lanes.h",
        "0xF0F0F0F0u",
        "0x70F0F0F0u",
        "gemm_lanes",
        NUMBERS,
    ),
    Fault(
        "gemm-lanes-factors-of-the-first-set",
        "gemm_lanes.h",
        "group / Shape::kGroups % Shape::kSets;\n    LaneUnit",
        "0;\n    LaneUnit",
        "gemm_lanes",
        (*RACE, *NUMBERS),
    ),
    Fault(
        "gemm-lanes-past-the-tile",
        "gemm_lanes.h",
        "if (row[i] >= rows) continue;",
        "",
        "gemm_lanes",
        (*RACE, *NUMBERS),
    ),
    Fault(
        "gemm-lanes-rows-swapped",
        "gemm_lanes.h",
        "at[2 * n][m][e], at[2 * n + 1][m][e]",
        "at[2 * n + 1][m][e], at[2 * n][m][e]",
        "gemm_lanes",
        NUMBERS,
    ),
    Fault(
        "attention-lanes-sees-one-more",
        "attention_prefill_lanes.metal",
        "e % 2 <= last[e / 2]",
        "e % 2 <= last[e / 2] + 1",
        "attention_prefill_lanes",
        NUMBERS,
    ),
    Fault(
        "attention-lanes-not-rescaled",
        "attention_prefill_lanes.metal",
        "total[r] *= factor;",
        "total[r] *= 1.0f;",
        "attention_prefill_lanes",
        NUMBERS,
    ),
    Fault(
        "attention-lanes-past-the-context",
        "attention_prefill_lanes.metal",
        "const bool there = from + i + row < end;",
        "const bool there = true;",
        "attention_prefill_lanes",
        (*NUMBERS, *BOUNDS),
    ),
]
