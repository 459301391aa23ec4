"""A checkpoint of the real model's shapes in the MLX 4-bit layout: 19.5 GB of random weights.

  python -m bench make-full OUT [--model real]

Made where it is measured, within seconds: codes are slices of one pool of random bytes, scales and
biases keep every product of order one. What it says is noise; its speed is the real model's, but
for a router that prefers no expert. Values depend on the seed and the tensor's name alone.
"""

from __future__ import annotations

import argparse
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from lily.tensorfile import TensorSpec
from numpy.typing import NDArray

from bench.checkpoint_files import (
    GROUP,
    mlx_config,
    mlx_tensors,
    write_index,
    write_safetensors,
)
from bench.kernel_memory import to_bf16
from bench.mid_model import write_tokenizer
from bench.shapes import MODELS

_POOL_BYTES = 1 << 28
_SHARD_BYTES = 5_000_000_000
_CODE_STD = {4: 4.61, 8: 73.9}  # of codes drawn evenly


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench make-full``."""
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="real", choices=MODELS)
    parser.add_argument("--seed", type=int, default=0)


def run(arguments: argparse.Namespace) -> None:
    """Write the folder, unless its configuration says that it is whole."""
    out, shape = arguments.out.absolute(), MODELS[arguments.model]
    if (out / "config.json").exists():
        print(f"{out.name} is there")
        return
    out.mkdir(parents=True, exist_ok=True)
    values = _Values(arguments.seed)
    shards = _shards(list(mlx_tensors(shape)))
    named = {}
    for index, tensors in enumerate(shards, start=1):
        name = f"model-{index:05}-of-{len(shards):05}.safetensors"
        write_safetensors(out / name, tensors, {"format": "mlx"}, values.tensor)
        named[name] = tensors
        print(f"wrote {name}", flush=True)
    write_tokenizer(out, shape.vocab)
    write_index(out, named, mlx_config(shape))


def _shards(tensors: list[TensorSpec]) -> list[list[TensorSpec]]:
    """In order, up to 5 GB a file, as mlx-lm writes them."""
    shards: list[list[TensorSpec]] = [[]]
    size = 0
    for spec in tensors:
        if shards[-1] and size + spec.nbytes > _SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(spec)
        size += spec.nbytes
    return shards


class _Values:
    """The numbers of every tensor, from its name."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rng = np.random.default_rng(seed)
        self._pool = rng.integers(0, 1 << 32, _POOL_BYTES // 4, dtype=np.uint32)

    def tensor(self, spec: TensorSpec) -> NDArray[Any]:
        """Values of a tensor as the file stores them, flat."""
        rng = np.random.default_rng([self._seed, zlib.crc32(spec.name.encode())])
        count = math.prod(spec.shape)
        if spec.dtype == "U32":
            return self._codes(rng, count)
        if spec.name.endswith((".scales", ".biases")):
            return self._affine(spec, count)
        return to_bf16(self._vector(rng, spec.name, count))

    def _codes(self, rng: np.random.Generator, count: int) -> NDArray[np.uint32]:
        parts = []
        while count:
            begin = int(rng.integers(0, self._pool.size - 1))
            parts.append(self._pool[begin : begin + count])
            count -= parts[-1].size
        return np.concatenate(parts)

    def _affine(self, spec: TensorSpec, count: int) -> NDArray[np.uint16]:
        # Both halves of a group come from one stream, named after the matrix.
        stem, part = spec.name.rsplit(".", 1)
        bits = 8 if stem.endswith(("mlp.gate", "mlp.shared_expert_gate")) else 4
        columns = spec.shape[-1] * GROUP
        wanted = 1.0 if stem.endswith("embed_tokens") else 1 / math.sqrt(columns)
        if stem.endswith("mlp.gate"):
            wanted *= 2
        rng = np.random.default_rng([self._seed, zlib.crc32(stem.encode())])
        # A few thousand groups, repeated: drawing each of 600 million would take minutes.
        pattern = rng.uniform(0.7, 1.3, 4096 + 1).astype(np.float32) * (wanted / _CODE_STD[bits])
        if part == "biases":
            pattern = pattern * np.float32(-(2**bits - 1) / 2)
        return np.resize(to_bf16(pattern), count)

    @staticmethod
    def _vector(rng: np.random.Generator, name: str, count: int) -> NDArray[np.float32]:
        if name.endswith("A_log"):
            return np.log(rng.uniform(0.01, 8.0, count)).astype(np.float32)
        if name.endswith("dt_bias"):
            return rng.uniform(-3.0, 1.0, count).astype(np.float32)
        drawn = rng.standard_normal(count, dtype=np.float32)
        if name.endswith("conv1d.weight"):
            return drawn * np.float32(0.4)
        return drawn * np.float32(0.2) + np.float32(1.0)  # norms, as this layout stores them
