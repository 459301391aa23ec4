"""Device memory for kernel benchmarks: large pools of random numbers that weights are cut from.

Cutting walks through a pool, so that a kernel run over many cuts in turn finds none of them in a
cache. Tensors of a CPU device run on every other CPU device too: one pool serves all arms. Knows no
kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from lily._native import kernels as native
from numpy.typing import NDArray

_ALIGNMENT = 64
_BLOCK = 1 << 24  # what is drawn; a pool repeats it, in memory of its own
GROUP = 64
CODE_BITS = {"q4": 4, "q8": 8}


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round float32 to bf16, nearest and ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    bits += np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits >> np.uint32(16)).astype(np.uint16)


def row_bytes(storage: str, cols: int, *, factors: bool = True) -> int:
    """Bytes of a stored row, with its scales and biases unless told otherwise."""
    if storage in CODE_BITS:
        return cols * CODE_BITS[storage] // 8 + (cols // GROUP * 4 if factors else 0)
    return cols * {"bf16": 2, "f32": 4}[storage]


class Pool:
    """Memory of one element type that tensors are cut from in turn, starting over at the end."""

    def __init__(self, device: native.Device, block: NDArray[np.generic], dtype: str, size: int):
        # Every page is written: a page of zeros that the system lends would be read from a cache.
        block = block[: min(len(block), size)]
        self._whole = device.zeros([size], dtype)
        self._size, self._at = size, 0
        self._unit = _ALIGNMENT // block.itemsize
        for begin in range(0, size, len(block)):
            count = min(len(block), size - begin)
            self._whole.part(begin, [count]).write(block[:count])

    def cut(self, shape: Sequence[int]) -> native.Tensor:
        """The next tensor of this shape."""
        count = int(np.prod(shape))
        if count > self._size:
            raise ValueError(f"a tensor of {count} elements is cut from a pool of {self._size}")
        if self._at + count > self._size:
            self._at = 0
        part = self._whole.part(self._at, list(shape))
        self._at += -(-count // self._unit) * self._unit
        return part


class Memory:
    """Pools by what they hold, and small tensors."""

    def __init__(self, device: native.Device, pool_bytes: int, seed: int = 0) -> None:
        self.device = device
        self._pool_bytes = pool_bytes
        self._rng = np.random.default_rng(seed)
        self._pools: dict[str, Pool] = {}

    def matrix(self, storage: str, rows: int, cols: int, *, experts: int = 1) -> native.Matrix:
        """The next weight, or stack of experts."""
        if storage in ("bf16", "f32"):
            weight, factors = self._pool(storage).cut([experts * rows * cols]), [None, None]
        else:
            codes = experts * rows * row_bytes(storage, cols, factors=False)
            weight = self._pool("codes").cut([codes])
            groups = [experts * rows * cols // GROUP]
            factors = [self._pool(name).cut(groups) for name in ("scales", "biases")]
        return native.Matrix(
            storage,
            weight,
            *factors,
            rows=rows,
            cols=cols,
            group_size=0 if factors[0] is None else GROUP,
            experts=experts,
        )

    def cut(self, kind: str, *shape: int) -> native.Tensor:
        """The next tensor of a pool: f32 or bf16."""
        return self._pool(kind).cut(shape)

    def normal(self, *shape: int, scale: float = 1.0) -> native.Tensor:
        """A small tensor of random float32."""
        values = self._rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        return self.device.tensor(values)

    def activation(self, *shape: int, scale: float = 1.0) -> native.Tensor:
        """A small random tensor of the type that flows between this device's prefill kernels."""
        values = self._rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        if self.device.activation_dtype == "f32":
            return self.device.tensor(values)
        if self.device.activation_dtype == "bf16":
            return self.device.tensor(to_bf16(values), "bf16")
        return self.device.tensor(values.astype(np.float16).view(np.uint16), "f16")

    @property
    def activation_bytes(self) -> int:
        """Of one value of that type."""
        return 4 if self.device.activation_dtype == "f32" else 2

    def empty_activation(self, *shape: int) -> native.Tensor:
        """Zeros of that type."""
        return self.device.zeros(list(shape), self.device.activation_dtype)

    def tensor(self, array: NDArray[np.generic]) -> native.Tensor:
        """A copy of a float32, uint32 or uint8 array."""
        return self.device.tensor(np.ascontiguousarray(array))

    def empty(self, *shape: int, dtype: str = "f32") -> native.Tensor:
        """A small tensor of zeros."""
        return self.device.zeros(list(shape), dtype)

    def random(self) -> np.random.Generator:
        """For what decides a case's own data, such as which experts are chosen."""
        return self._rng

    def _pool(self, kind: str) -> Pool:
        if kind not in self._pools:
            self._pools[kind] = self._make_pool(kind)
        return self._pools[kind]

    def _make_pool(self, kind: str) -> Pool:
        if kind == "codes":
            block = self._rng.integers(0, 256, _BLOCK, dtype=np.uint8)
            return Pool(self.device, block, "u8", self._pool_bytes)
        values = self._rng.standard_normal(_BLOCK // 4, dtype=np.float32) / np.float32(30)
        if kind == "f32":
            return Pool(self.device, values, "f32", self._pool_bytes // 4)
        # A group of 64 four-bit codes is 32 bytes; its scale and its bias are 2 each.
        share = 16 if kind in ("scales", "biases") else 1
        return Pool(self.device, to_bf16(values), "bf16", self._pool_bytes // share // 2)
