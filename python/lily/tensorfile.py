"""Safetensors files over NumPy memory maps, with bfloat16 carried as uint16.

Owns the container: headers, offsets, the checks on a file that may be damaged, and bit-exact
conversion between stored types and float32. Knows no tensor names and no model.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lily.errors import ModelError

# Stored type -> the NumPy type that holds its bits.
STORED = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32, "U32": np.uint32}
HEADER_LIMIT = 100_000_000  # as in the reference implementation


@dataclass(frozen=True)
class TensorSpec:
    """Name, stored type and shape of a tensor that is to be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(np.dtype(STORED[self.dtype]).itemsize)


@dataclass(frozen=True)
class Source:
    """A tensor in a file: mapped when asked for, never read as a whole."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(np.dtype(STORED[self.dtype]).itemsize)

    def array(self) -> np.ndarray:
        """A read-only map of the tensor; pages are loaded as they are touched."""
        return np.memmap(self.path, STORED[self.dtype], "r", self.offset, self.shape)


def to_float32(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Stored bits as float32 values; exact."""
    if dtype == "BF16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return raw.astype(np.float32)


def from_float32(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 values in stored form, rounded to nearest, ties to even."""
    if dtype == "F32":
        return values
    if dtype == "F16":
        return values.astype(np.float16)
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    # A NaN's payload may round into the exponent: keep it a quiet NaN.
    nan = np.isnan(values)
    out = rounded.astype(np.uint16)
    return np.where(nan, (bits >> np.uint32(16)).astype(np.uint16) | np.uint16(0x40), out)


def open_checkpoint(folder: Path) -> dict[str, Source]:
    """Every tensor of the folder's `model*.safetensors`, checked against the files' sizes.

    With an index, exactly the files that it names are read, and a tensor it promises must be there.
    """
    index = folder / "model.safetensors.index.json"
    promised: dict[str, str] = {}
    if index.is_file():
        try:
            promised = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            files = sorted({folder / name for name in promised.values()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{index} cannot be read: {error}") from None
    else:
        files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ModelError(f"no model*.safetensors in {folder}")
    tensors: dict[str, Source] = {}
    for path in files:
        for name, source in read_header(path).items():
            if name in tensors:
                raise ModelError(f"{path}: {name} is in another file too")
            tensors[name] = source
    missing = sorted(set(promised) - set(tensors))
    if missing:
        raise ModelError(f"{index} names {missing[0]}, which no file holds")
    return tensors


def read_header(path: Path) -> dict[str, Source]:
    """The tensors of one file. Every offset is checked before anything is mapped."""
    try:
        size = path.stat().st_size
        with path.open("rb") as f:
            head = f.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else HEADER_LIMIT + 1
            if length > min(HEADER_LIMIT, size - 8):
                raise ModelError(f"{path}: the file is cut off or no safetensors file")
            header = json.loads(f.read(length))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    except ValueError as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: its header is damaged: {error}") from None
    if not isinstance(header, dict):
        raise ModelError(f"{path}: its header is damaged: no object")
    return {name: _source(path, name, entry, 8 + length, size)
            for name, entry in header.items() if name != "__metadata__"}  # fmt: skip


def _source(path: Path, name: str, entry: Any, base: int, size: int) -> Source:
    try:
        dtype, shape = entry["dtype"], tuple(int(n) for n in entry["shape"])
        begin, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: the entry of {name} is damaged: {error}") from None
    if dtype not in STORED:
        raise ModelError(f"{path}: {name} is {dtype}; expected BF16, F16, F32 or U32")
    source = Source(path, dtype, shape, base + begin)
    if min(shape, default=1) < 1 or begin < 0 or end - begin != source.nbytes:
        raise ModelError(f"{path}: {name} has shape {list(shape)} but {end - begin} bytes")
    if base + end > size:
        raise ModelError(f"{path}: {name} ends at byte {base + end}, the file at {size}")
    return source


@contextmanager
def write_shard(
    path: Path, specs: list[TensorSpec], metadata: dict[str, str]
) -> Iterator[Callable[[str], np.ndarray]]:
    """Create a file of zeros with its header; the block fills each tensor through a map.

    The function given to the block maps one tensor at a time, so that finished pages can leave
    memory; the file is flushed at the end.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    offsets: dict[str, tuple[TensorSpec, int]] = {}
    for spec in specs:
        header[spec.name] = {"dtype": spec.dtype, "shape": list(spec.shape),
                             "data_offsets": [at, at + spec.nbytes]}  # fmt: skip
        offsets[spec.name] = spec, at
        at += spec.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start on 8 bytes
    base = 8 + len(text)
    with path.open("wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(base + at)

    def tensor(name: str) -> np.ndarray:
        spec, offset = offsets[name]
        return np.memmap(path, STORED[spec.dtype], "r+", base + offset, spec.shape)

    yield tensor
