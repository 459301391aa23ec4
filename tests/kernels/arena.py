"""Tensors of one test on one device: poisoned, fenced, and watched.

Every tensor lies between guard regions at an odd offset. Outputs start as NaN (or a pattern for
integers). After each run the guards and all inputs must be what they were. Knows no kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from lily._native import kernels as native
from numpy.typing import NDArray

from kernels.weights import Array, Weight, from_bf16, to_bf16

# Odd, so that data is aligned to its own type only; NaN as floating point, so that whatever strays
# into a guard shows in the result.
GUARD = 61
# GPU kernels load vectors, and the engine's tensors begin where those may; as many elements, so
# that every type is aligned.
ALIGNED_GUARD = 64
_NUMPY = {"f32": np.float32, "u32": np.uint32, "u8": np.uint8, "bf16": np.uint16, "f16": np.uint16}
_POISON = {"f32": 0x7FC0DEAD, "u32": 0xDEADBEEF, "u8": 0xA5, "bf16": 0x7FCD, "f16": 0x7E55}


def poison(shape: tuple[int, ...] | int, dtype: str) -> Array:
    """An array of NaN, or of a pattern that no kernel writes."""
    if dtype == "f32":
        return np.full(shape, _POISON[dtype], np.uint32).view(np.float32)
    return np.full(shape, _POISON[dtype], _NUMPY[dtype])


class _Fenced:
    def __init__(
        self, device: native.Device, data: Array, dtype: str, fixed: bool, edge: Array
    ) -> None:
        self.edge_bytes = edge.nbytes
        self.before = np.concatenate([edge, data.ravel(), edge])
        self.whole = device.tensor(self.before, dtype=dtype)
        self.tensor = self.whole.part(edge.size, list(data.shape))
        self.fixed = fixed

    def check(self) -> None:
        now = self.whole.numpy().tobytes()
        before = self.before.tobytes()
        edge = self.edge_bytes
        where = f"a tensor of shape {self.tensor.shape} {self.tensor.dtype}"
        assert now[:edge] == before[:edge], f"written before {where}"
        assert now[-edge:] == before[-edge:], f"written past {where}"
        assert not self.fixed or now == before, f"an input was changed: {where}"


class Arena:
    """Makes the tensors of one test and runs steps over them."""

    tiles = ""  # whose tile sizes steps are recorded with: the device's own

    def __init__(self, device: native.Device) -> None:
        self.device = device
        self.is_gpu = device.name != "cpu"
        self._guard = ALIGNED_GUARD if self.is_gpu else GUARD
        self._fenced: list[_Fenced] = []

    def input(self, array: Array, dtype: str | None = None) -> native.Tensor:
        """A tensor that no run may change."""
        return self._add(array, dtype, fixed=True)

    def inout(self, array: Array, dtype: str | None = None) -> native.Tensor:
        """A tensor with contents that a run may change."""
        return self._add(array, dtype, fixed=False)

    def output(self, *shape: int, dtype: str = "f32") -> native.Tensor:
        """A poisoned tensor."""
        return self._add(poison(shape, dtype), dtype, fixed=False)

    def activation(self, values: NDArray[np.float32]) -> native.Tensor:
        """An input in the type that activations have on this device."""
        if self.device.activation_dtype == "f32":
            return self.input(values)
        return self.input(to_bf16(values), "bf16")

    def activation_output(self, *shape: int) -> native.Tensor:
        """A poisoned tensor of the type that activations have on this device."""
        return self.output(*shape, dtype=self.device.activation_dtype)

    def step(self) -> native.Step:
        """A step to record."""
        return native.Step(self.device, tiles=self.tiles)

    def record(self, value: np.void | Array) -> native.Tensor:
        """A struct of params.h, or several, that a run may change; as bytes."""
        return self.inout(np.frombuffer(value.tobytes(), np.uint8))

    def matrix(self, weight: Weight) -> native.Matrix:
        """A stored weight; a stack of experts where it has three axes."""
        parts = [
            None if part is None else self.weight(part)
            for part in (weight.data, weight.scales, weight.biases)
        ]
        *experts, rows, cols = weight.values.shape
        return native.Matrix(
            weight.storage,
            *parts,
            rows=rows,
            cols=cols,
            group_size=weight.group_size,
            experts=experts[0] if experts else 1,
        )

    def weight(self, array: Array) -> native.Tensor:
        """A part of a matrix, as bytes, where only this device's alignment of weights holds."""
        alignment = self.device.weight_alignment_bytes
        # Bytes of ones: NaN as f32 and bf16 wherever a stray read begins.
        edge = np.full(GUARD if alignment == 1 else 4 * alignment, 0xFF, np.uint8)
        fenced = _Fenced(self.device, np.frombuffer(array.tobytes(), np.uint8), "u8", True, edge)
        self._fenced.append(fenced)
        return fenced.tensor

    def run(self, operation: Callable[..., None], *arguments: Any) -> None:
        """Record one operation, run it, and check fences and inputs."""
        step = self.step()
        operation(step, *arguments)
        self.run_step(step)

    def run_step(self, step: native.Step) -> None:
        """Run a recorded step, and check fences and inputs."""
        self.device.run(step)
        for fenced in self._fenced:
            fenced.check()

    def _add(self, array: Array, dtype: str | None, fixed: bool) -> native.Tensor:
        kind = dtype or {np.dtype(np.float32): "f32", np.dtype(np.uint32): "u32"}.get(
            array.dtype, "u8"
        )
        # Bytes hold structs of 32-bit fields, which must not be torn.
        edge = poison(4 * self._guard if kind == "u8" else self._guard, kind)
        fenced = _Fenced(self.device, array, kind, fixed, edge)
        self._fenced.append(fenced)
        return fenced.tensor


def as_activation(device: native.Device, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The values as the device's type of activations holds them."""
    return values if device.activation_dtype == "f32" else from_bf16(to_bf16(values))


def floats(tensor: native.Tensor) -> NDArray[np.float32]:
    """The contents of an f32 or bf16 tensor."""
    array = tensor.numpy()
    return from_bf16(array) if tensor.dtype == "bf16" else array
