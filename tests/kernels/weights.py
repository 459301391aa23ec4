"""Stored weights for tests: random numbers in each storage, and the float64 values they stand for.

The packing is MLX's affine format as DESIGN section 4 states it. This file knows no device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Float64 = NDArray[np.float64]

# (storage, group size); quantised columns must be a multiple of the group.
STORAGES = [
    ("f32", 0),
    ("bf16", 0),
    ("q4", 32),
    ("q4", 64),
    ("q4", 128),
    ("q8", 32),
    ("q8", 64),
    ("q8", 128),
]


def to_bf16(values: NDArray[np.floating]) -> NDArray[np.uint16]:
    """Round float32 to bf16, nearest and ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def from_bf16(bits: Array) -> NDArray[np.float32]:
    """The float32 values of bf16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True, eq=False)
class Weight:
    """One matrix [rows, cols] or stack [experts, rows, cols], as stored and as it is meant."""

    storage: str
    group_size: int
    data: Array
    scales: Array | None
    biases: Array | None
    values: Float64  # exactly what the stored bits stand for
    magnitude: Float64  # |scale * code| + |bias|: what rounding errors are relative to

    def expert(self, index: int) -> Float64:
        """The values of one expert of a stack."""
        return self.values[index]


def make_weight(
    rng: np.random.Generator, storage: str, group_size: int, shape: tuple[int, ...], scale: float
) -> Weight:
    """Random weights of about the standard deviation `scale`."""
    if storage in ("f32", "bf16"):
        drawn = (rng.standard_normal(shape) * scale).astype(np.float32)
        data: Array = drawn if storage == "f32" else to_bf16(drawn)
        values = (drawn if storage == "f32" else from_bf16(data)).astype(np.float64)
        return Weight(storage, 0, data, None, None, values, np.abs(values))
    bits = {"q4": 4, "q8": 8}[storage]
    groups = (*shape[:-1], shape[-1] // group_size)
    codes = rng.integers(0, 2**bits, shape, dtype=np.uint32)
    step = rng.uniform(0.5, 1.5, groups) * scale * 3.4 / 2**bits
    step *= rng.choice([-1.0, 1.0], groups)  # MLX's scales have either sign
    scales, biases = to_bf16(step), to_bf16(-step * 2 ** (bits - 1) * rng.uniform(0.8, 1.2, groups))
    spread = np.repeat(from_bf16(scales).astype(np.float64), group_size, -1)
    offset = np.repeat(from_bf16(biases).astype(np.float64), group_size, -1)
    scaled = spread * codes
    return Weight(
        storage,
        group_size,
        pack(codes, bits),
        scales,
        biases,
        scaled + offset,
        np.abs(scaled) + np.abs(offset),
    )


def pack(codes: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """Codes into uint32 words along the last axis, the first code in the lowest bits."""
    per_word = 32 // bits
    split = codes.reshape(*codes.shape[:-1], codes.shape[-1] // per_word, per_word)
    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
    return np.bitwise_or.reduce(split << shifts, axis=-1).astype(np.uint32)
