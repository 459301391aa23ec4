"""Random inputs drawn once, and their places on a device: fenced, poisoned, read back as numbers.

Owns storage formats as NumPy sees them. Outputs begin as NaN between fences that no kernel may
touch. Knows no kernel and no tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lily._native import kernels as native

Array = NDArray[Any]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

GROUP = 64
FENCE = 64  # elements: any type stays aligned for vector loads
_BITS = {"q4": 4, "q8": 8}
_NUMPY = {"f32": np.float32, "u32": np.uint32, "u8": np.uint8, "bf16": np.uint16, "f16": np.uint16}
_POISON = {"f32": 0x7FC0DEAD, "u32": 0xDEADBEEF, "u8": 0xA5, "bf16": 0x7FCD, "f16": 0x7E55}


def to_bf16(values: Array) -> NDArray[np.uint16]:
    """Round float32 to bf16, nearest and ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype(np.uint16)


def from_bf16(bits: Array) -> Float32:
    """The float32 values of bf16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def stored(values: Array, dtype: str) -> Array:
    """Float32 values as a tensor of this type holds them; bf16 and f16 as their bits."""
    if dtype == "bf16":
        return to_bf16(values)
    return values.astype(np.float16).view(np.uint16) if dtype == "f16" else values


def numbers(bits: Array, dtype: str) -> Array:
    """What a tensor's content stands for: the inverse of `stored`."""
    if dtype == "bf16":
        return from_bf16(bits)
    return bits.view(np.float16).astype(np.float32) if dtype == "f16" else bits


@dataclass(frozen=True, eq=False)
class Weight:
    """One matrix [1, rows, cols] or stack [experts, rows, cols] in MLX's affine format."""

    storage: str
    experts: int
    rows: int
    cols: int
    codes: NDArray[np.uint32]  # [experts, rows, words]
    scales: NDArray[np.uint16]  # [experts, rows, groups], bf16
    biases: NDArray[np.uint16]

    @property
    def bytes_per_row(self) -> int:
        """With the row's scales and biases."""
        return self.cols * _BITS[self.storage] // 8 + self.cols // GROUP * 4

    def values(self, expert: int = 0, rows: slice = slice(None)) -> Float64:
        """Rows of one expert, exactly as their bits mean them."""
        bits = _BITS[self.storage]
        shifts = np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
        words = self.codes[expert, rows]
        codes = ((words[..., None] >> shifts) & np.uint32(2**bits - 1)).reshape(len(words), -1)
        scale, bias = (
            np.repeat(from_bf16(factors[expert, rows]).astype(np.float64), GROUP, -1)
            for factors in (self.scales, self.biases)
        )
        return scale * codes + bias


def draw_weight(
    rng: np.random.Generator, storage: str, rows: int, cols: int, experts: int = 1
) -> Weight:
    """A random weight that keeps the size of what it multiplies."""
    bits, groups = _BITS[storage], (experts, rows, cols // GROUP)
    words = rng.integers(0, 2**32, (experts, rows, cols * bits // 32), dtype=np.uint32)
    # Uniform codes of this step have about the standard deviation cols ** -0.5; either sign occurs.
    step = rng.uniform(0.5, 1.5, groups).astype(np.float32) * np.float32(3.4 / 2**bits / cols**0.5)
    step *= rng.choice(np.array([-1, 1], np.float32), groups)
    centre = rng.uniform(0.9, 1.1, groups).astype(np.float32) * np.float32(-(2 ** (bits - 1)))
    return Weight(storage, experts, rows, cols, words, to_bf16(step), to_bf16(step * centre))


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Float32:
    """Random float32 numbers."""
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)


class StrayWrite(Exception):  # noqa: N818  (a finding, not an error of this program)
    """A kernel wrote outside of its tensor."""


@dataclass
class _Watched:
    tensor: native.Tensor  # with its fences
    before: Array
    size: int
    shape: tuple[int, ...]
    dtype: str


class Place:
    """The tensors of one check on one device."""

    def __init__(self, device: native.Device, activation: str) -> None:
        """`activation`: the type that both sides of the comparison have their activations from."""
        self.device = device
        self._activation = activation
        self._watched: dict[str, _Watched] = {}
        self._matrices: dict[int, native.Matrix] = {}

    def tensor(self, array: Array, dtype: str | None = None) -> native.Tensor:
        """An input; bf16 bits need their dtype said."""
        return self.device.tensor(np.ascontiguousarray(array), dtype)

    def record(self, *values: np.generic) -> native.Tensor:
        """A struct of 32-bit fields, as bytes."""
        return self.tensor(np.frombuffer(b"".join(v.tobytes() for v in values), np.uint8))

    def activation(self, values: Float32) -> native.Tensor:
        """An input of the device's own type that holds what the checked device's type can hold."""
        seen = numbers(stored(values, self._activation), self._activation)
        own = self.device.activation_dtype
        return self.tensor(stored(seen, own), None if own == "f32" else own)

    def matrix(self, weight: Weight) -> native.Matrix:
        """A stored weight, once however often it is asked for."""
        if id(weight) not in self._matrices:
            self._matrices[id(weight)] = native.Matrix(
                weight.storage,
                self.tensor(weight.codes.ravel()),
                self.tensor(weight.scales.ravel(), "bf16"),
                self.tensor(weight.biases.ravel(), "bf16"),
                rows=weight.rows,
                cols=weight.cols,
                group_size=GROUP,
                experts=weight.experts,
            )
        return self._matrices[id(weight)]

    def output(self, name: str, *shape: int, dtype: str = "f32") -> native.Tensor:
        """A poisoned tensor whose content is a result."""
        return self._watch(name, np.full(shape, _poison(dtype), _NUMPY[dtype]), dtype)

    def activation_output(self, name: str, *shape: int) -> native.Tensor:
        """The same, of the type that activations have on this device."""
        return self.output(name, *shape, dtype=self.device.activation_dtype)

    def inout(self, name: str, array: Array, dtype: str = "f32") -> native.Tensor:
        """A tensor that a kernel reads and changes; its content afterwards is a result."""
        return self._watch(name, array, dtype)

    def results(self) -> dict[str, Array]:
        """Content of all outputs as numbers. Raises StrayWrite where a fence was touched."""
        found = {}
        for name, watched in self._watched.items():
            now, before, end = watched.tensor.numpy(), watched.before, FENCE + watched.size
            if now[:FENCE].tobytes() != before[:FENCE].tobytes():
                raise StrayWrite(f"wrote before '{name}' {list(watched.shape)}")
            if now[end:].tobytes() != before[end:].tobytes():
                raise StrayWrite(f"wrote past '{name}' {list(watched.shape)}")
            found[name] = numbers(now[FENCE:end].reshape(watched.shape), watched.dtype)
        return found

    def reset(self) -> None:
        """Everything that runs have written, as it was before."""
        for watched in self._watched.values():
            watched.tensor.write(watched.before)

    def _watch(self, name: str, array: Array, dtype: str) -> native.Tensor:
        fence = np.full(FENCE, _poison(dtype), _NUMPY[dtype])
        before = np.concatenate([fence, array.ravel(), fence])
        whole = self.device.tensor(before, None if before.itemsize != 2 else dtype)
        self._watched[name] = _Watched(whole, before, array.size, array.shape, dtype)
        return whole.part(FENCE, list(array.shape))


def _poison(dtype: str) -> Any:
    bits = np.array(_POISON[dtype], np.uint32)
    return bits.view(np.float32) if dtype == "f32" else bits
