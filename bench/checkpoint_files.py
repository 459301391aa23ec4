"""Checkpoints of random or absent numbers: tensor names of both layouts, and safetensors files.

Writes one tensor at a time, so that memory is bounded by the largest. A tensor without data leaves
a hole in the file, which occupies no disk and reads as zeros. Knows shapes, not values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from lily.tensorfile import TensorSpec, write_shard
from numpy.typing import NDArray

from bench.shapes import ModelShape

GROUP = 64


def hf_tensors(shape: ModelShape) -> Iterator[TensorSpec]:
    """The bf16 layout of the hub, without vision tower and MTP head."""
    model = "model.language_model."

    def spec(name: str, *dims: int) -> TensorSpec:
        return TensorSpec(name, "BF16", dims)

    yield spec("lm_head.weight", shape.vocab, shape.hidden)
    yield spec(f"{model}embed_tokens.weight", shape.vocab, shape.hidden)
    yield spec(f"{model}norm.weight", shape.hidden)
    for index in range(shape.layers):
        layer = f"{model}layers.{index}."
        for name, dims in _vectors(shape, index).items():
            yield spec(layer + name, *dims)
        if not shape.is_attention(index):
            yield spec(f"{layer}linear_attn.conv1d.weight", shape.channels, 1, shape.conv_width)
        for name, dims in _matrices(shape, index).items():
            yield spec(f"{layer}{name}.weight", *dims)
        experts = f"{layer}mlp.experts."
        yield spec(f"{experts}gate_up_proj", shape.experts, 2 * shape.width, shape.hidden)
        yield spec(f"{experts}down_proj", shape.experts, shape.hidden, shape.width)


def mlx_tensors(shape: ModelShape) -> Iterator[TensorSpec]:
    """The 4-bit layout of mlx-lm: groups of 64, router and shared expert's gate in 8 bits."""
    model = "language_model.model."

    def quantised(name: str, bits: int, *dims: int) -> Iterator[TensorSpec]:
        *lead, cols = dims
        yield TensorSpec(f"{name}.weight", "U32", (*lead, cols * bits // 32))
        for part in ("scales", "biases"):
            yield TensorSpec(f"{name}.{part}", "BF16", (*lead, cols // GROUP))

    yield from quantised("language_model.lm_head", 4, shape.vocab, shape.hidden)
    yield from quantised(f"{model}embed_tokens", 4, shape.vocab, shape.hidden)
    yield TensorSpec(f"{model}norm.weight", "BF16", (shape.hidden,))
    for index in range(shape.layers):
        layer = f"{model}layers.{index}."
        for name, dims in _vectors(shape, index).items():
            yield TensorSpec(layer + name, "BF16", dims)
        if not shape.is_attention(index):
            conv = (shape.channels, shape.conv_width, 1)
            yield TensorSpec(f"{layer}linear_attn.conv1d.weight", "BF16", conv)
        for name, dims in _matrices(shape, index).items():
            yield from quantised(layer + name, 8 if name in _EIGHT_BITS else 4, *dims)
        experts = f"{layer}mlp.switch_mlp."
        for name in ("gate_proj", "up_proj"):
            yield from quantised(experts + name, 4, shape.experts, shape.width, shape.hidden)
        yield from quantised(f"{experts}down_proj", 4, shape.experts, shape.hidden, shape.width)


_EIGHT_BITS = ("mlp.gate", "mlp.shared_expert_gate")


def mlx_config(shape: ModelShape) -> dict[str, Any]:
    """config.json of the 4-bit layout."""
    quantization: dict[str, Any] = {"group_size": GROUP, "bits": 4, "mode": "affine"}
    for index in range(shape.layers):
        for name in _EIGHT_BITS:
            path = f"language_model.model.layers.{index}.{name}"
            quantization[path] = {"group_size": GROUP, "bits": 8}
    both = {"quantization": quantization, "quantization_config": quantization}
    return {**shape.hf_config(), **both}


def _vectors(shape: ModelShape, index: int) -> dict[str, tuple[int, ...]]:
    norms: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (shape.hidden,),
        "post_attention_layernorm.weight": (shape.hidden,),
    }
    if shape.is_attention(index):
        return norms | {f"self_attn.{name}_norm.weight": (shape.head_dim,) for name in "qk"}
    return norms | {
        "linear_attn.A_log": (shape.value_heads,),
        "linear_attn.dt_bias": (shape.value_heads,),
        "linear_attn.norm.weight": (shape.value_dim,),
    }


def _matrices(shape: ModelShape, index: int) -> dict[str, tuple[int, int]]:
    hidden, shared = shape.hidden, shape.shared_width
    if shape.is_attention(index):
        mixer = {
            "self_attn.q_proj": (2 * shape.q_width, hidden),
            "self_attn.k_proj": (shape.kv_width, hidden),
            "self_attn.v_proj": (shape.kv_width, hidden),
            "self_attn.o_proj": (hidden, shape.q_width),
        }
    else:
        mixer = {
            "linear_attn.in_proj_qkv": (shape.channels, hidden),
            "linear_attn.in_proj_z": (shape.value_width, hidden),
            "linear_attn.in_proj_b": (shape.value_heads, hidden),
            "linear_attn.in_proj_a": (shape.value_heads, hidden),
            "linear_attn.out_proj": (hidden, shape.value_width),
        }
    return mixer | {
        "mlp.gate": (shape.experts, hidden),
        "mlp.shared_expert_gate": (1, hidden),
        "mlp.shared_expert.gate_proj": (shared, hidden),
        "mlp.shared_expert.up_proj": (shared, hidden),
        "mlp.shared_expert.down_proj": (hidden, shared),
    }


def write_safetensors(
    path: Path,
    tensors: list[TensorSpec],
    metadata: dict[str, str],
    values: Callable[[TensorSpec], NDArray[np.generic] | None],
) -> None:
    """One file; `values` gives each tensor's numbers, or None for a hole."""
    with write_shard(path, tensors, metadata) as place:
        for spec in tensors:
            array = values(spec)
            if array is None:
                continue
            if array.nbytes != spec.nbytes:
                raise ValueError(f"{spec.name}: {array.nbytes} bytes, expected {spec.nbytes}")
            place(spec.name)[...] = array.reshape(spec.shape)


def write_index(folder: Path, shards: dict[str, list[TensorSpec]], config: dict[str, Any]) -> None:
    """config.json, and the index of the shards where there are several."""
    write_json(folder / "config.json", config)
    if len(shards) > 1:
        places = {spec.name: name for name, specs in shards.items() for spec in specs}
        total = sum(spec.nbytes for specs in shards.values() for spec in specs)
        index = {"metadata": {"total_size": total}, "weight_map": places}
        write_json(folder / "model.safetensors.index.json", index)


def write_json(path: Path, document: object) -> None:
    """A file that people can read."""
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
