"""Planted faults in tensor ops, over their emulation, and the check that notices them."""

from __future__ import annotations

from metal.mutations import Fault
from metal.mutations_registry import check
from metal.mutations_rows import BOUNDS, NUMBERS, RACE

EMULATION = "clang/MetalPerformancePrimitives/MetalPerformancePrimitives.h"


@check(
    "tensor_ops/prefill.metal",
    *("linear_gemm_q4_bf16_t64_tensor", "attention_prefill_bf16_bf16_d256_tensor"),
)
def tensor_ops(device, rng):
    """A product of more than a tile, and attention over more than a block."""
    from kernels import test_linear, test_prefill_tensor
    from kernels.arena import Arena
    from kernels.weights import make_weight

    Arena.tiles = "apple_tensor"
    weights = [make_weight(rng, "q4", 64, (66, 128), scale=0.5)]
    x = test_linear.rows_of(rng, 70, 128)
    test_linear.assert_product(device, test_linear.run(device, x, weights), x, weights)
    test_prefill_tensor.test_causal_attention(device, rng, (6, 2, 256, 64), 40, 67)


def fault(name: str, text: str, becomes: str, *more: str) -> Fault:
    """In tile_tensor_ops.h; it gives wrong numbers, or is noticed by `more`."""
    file = "tile_tensor_ops.h"
    return Fault(f"tensor-{name}", file, text, becomes, "tensor_ops", (*NUMBERS, *more))


TENSOR_FAULTS = [
    fault(
        "left-turned",
        "from[(m * 16 + row) * stride + k * 16 + column]",
        "from[(m * 16 + column) * stride + k * 16 + row]",
    ),
    fault(
        "right-turned",
        "found.at[e] = row * stride + column;",
        "found.at[e] = column * stride + row;",
        *BOUNDS,
    ),
    fault("right-not-transposed", "multiply_all<true>(", "multiply_all<false>(", *BOUNDS),
    fault("right-transposed", "multiply_all<false>(", "multiply_all<true>(", *BOUNDS),
    fault("sums-not-carried", "c[ushort(e)] = sums[e];", "c[ushort(e)] = 0.0f;"),
    fault(
        "results-turned",
        "found.column[e] = uint(at[0]), found.row[e] = uint(at[1]);",
        "found.row[e] = uint(at[0]), found.column[e] = uint(at[1]);",
        *(*BOUNDS, *RACE),
    ),
    fault("all-bands-at-once", "if (m != band || ", "if (", *RACE),
    fault("rows-scaled-alike", "factors[m * 16 + rows.row[e]]", "factors[m * 16]"),
    # No fault: where lanes hold another number of elements, every result must be NaN.
    Fault(
        "tensor-other-capacity",
        EMULATION,
        "return kCapacity;",
        "return kCapacity + 1;",
        "tensor_ops",
        NUMBERS,
    ),
]
