#!/usr/bin/env python3
"""Write the seed corpora of the fuzz targets: make_corpus.py OUT -> OUT/safetensors, OUT/config."""

import json
import struct
import sys
from pathlib import Path

TEXT = {
    "model_type": "qwen3_5_moe_text",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    "eos_token_id": [1, 2],
}
TYPES = ["linear_attention"] * 3 + ["full_attention"]
AFFINE = {"group_size": 64, "bits": 4, "mode": "affine"}
GATE = {"language_model.model.layers.0.mlp.gate": {"group_size": 64, "bits": 8}, "lm_head": False}


def config_seeds() -> list[bytes]:
    flat = TEXT | {"full_attention_interval": 4}
    nested = {"model_type": "qwen3_5_moe", "text_config": TEXT | {"layer_types": TYPES}}
    quantised = nested | {"quantization": AFFINE | GATE, "quantization_config": AFFINE | GATE}
    awq = flat | {"quantization_config": {"quant_method": "awq", "bits": 4}}
    old = {k: v for k, v in flat.items() if k != "rope_parameters"}
    old |= {"rope_theta": 1e7, "rope_scaling": {"type": "default"}, "partial_rotary_factor": 0.25}
    seeds = [json.dumps(c).encode() for c in (flat, nested, quantised, awq, old)]
    return [*seeds, rb'{"a":[1,-2.5e3,true,null,"\ud83d\ude00\u00e9"],"b":{"c":{}}}', b"[[[[]]]]"]


def shard(tensors: dict[str, tuple[str, list[int], int]], pad: int = 0) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode() + b" " * pad
    return struct.pack("<Q", len(text)) + text + bytes(at)


def safetensors_seeds() -> list[bytes]:
    three = shard({"a": ("F32", [3], 12), "none": ("U32", [4, 0], 0), "b": ("BF16", [5, 1], 10)})
    odd = shard({"s": ("I64", [], 8), "f": ("F4", [6], 3), "t": ("BOOL", [1, 1, 1], 1)}, pad=5)
    bare = [shard({}), struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 2**63) + b"{}"]
    # The target also takes a header without its length, ended by a zero byte.
    return [three, odd, three[8:], odd[8:], *bare]


def main() -> None:
    for name, seeds in (("config", config_seeds()), ("safetensors", safetensors_seeds())):
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (folder / f"seed-{number:02}").write_bytes(seed)


if __name__ == "__main__":
    main()
