"""Random checkpoints of the architecture, in every layout that Lily reads.

This file owns the writing of safetensors files, sound and damaged, and an affine quantiser of its
own. It imports NumPy only, so that the tests which use it need no oracle. Weights are drawn with
scales that matter (norms away from 1, a peaked router), so that a wrong sign, half or head order
changes the logits a lot.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Tensors = dict[str, Array]  # uint16 arrays hold bf16


@dataclass(frozen=True)
class Spec:
    """The extents of a model; all different where the architecture lets them."""

    hidden: int = 96
    layer_types: tuple[str, ...] = ("delta", "delta", "delta", "attention")
    q_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    rotary_dims: int = 8
    key_heads: int = 2
    value_heads: int = 4
    key_dim: int = 32
    value_dim: int = 48
    experts: int = 5
    experts_per_token: int = 3
    expert_width: int = 40
    shared_width: int = 72
    vocab: int = 301
    max_positions: int = 640
    tied: bool = False
    rope_theta: float = 1e7
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def conv_channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


TINY = Spec()
SPECS = {
    "five_experts": TINY,
    "one_kv_head": Spec(
        hidden=80, layer_types=("delta", "attention", "delta"), q_heads=3, kv_heads=1, head_dim=64,
        rotary_dims=16, key_heads=1, value_heads=3, key_dim=48, value_dim=16, experts=9,
        experts_per_token=2, expert_width=56, shared_width=24, vocab=2100,
    ),
    "tied": Spec(
        hidden=64, layer_types=("attention", "delta"), q_heads=4, kv_heads=4, head_dim=16,
        rotary_dims=8, key_heads=4, value_heads=4, key_dim=16, value_dim=24, experts=4,
        experts_per_token=4, expert_width=32, shared_width=48, vocab=128, tied=True,
    ),
    "rotates_all": Spec(
        hidden=128, layer_types=("delta", "attention"), q_heads=6, kv_heads=2, head_dim=16,
        rotary_dims=16, key_heads=2, value_heads=8, key_dim=16, value_dim=32, experts=17,
        experts_per_token=1, expert_width=33, shared_width=31, vocab=515,
    ),
}  # fmt: skip
# Every inner extent is a multiple of 128, so that any group size divides it.
QUANTISABLE = Spec(
    hidden=128, q_heads=2, kv_heads=1, head_dim=128, rotary_dims=32, key_heads=1, value_heads=2,
    key_dim=64, value_dim=128, experts=6, experts_per_token=2, expert_width=128, shared_width=256,
    vocab=384,
)  # fmt: skip


def to_bf16(values: Array) -> NDArray[np.uint16]:
    """Round to nearest even, as every framework does."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: Array) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def random_tensors(spec: Spec, seed: int = 0) -> Tensors:
    """Weights in float32 under the names of the text-only HF layout."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 1.0) -> Array:
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    def linear(rows: int, cols: int, gain: float = 1.0) -> Array:
        return normal(rows, cols, scale=gain / cols**0.5)

    h, tensors = spec.hidden, {}
    tensors["model.embed_tokens.weight"] = normal(spec.vocab, h)
    tensors["model.norm.weight"] = normal(h, scale=0.2)
    if not spec.tied:
        tensors["lm_head.weight"] = linear(spec.vocab, h)
    for index, kind in enumerate(spec.layer_types):
        p = f"model.layers.{index}."
        tensors[p + "input_layernorm.weight"] = normal(h, scale=0.2)
        tensors[p + "post_attention_layernorm.weight"] = normal(h, scale=0.2)
        if kind == "attention":
            a, q, kv = p + "self_attn.", spec.q_heads * spec.head_dim, spec.kv_heads * spec.head_dim
            tensors[a + "q_proj.weight"] = linear(2 * q, h)
            tensors[a + "k_proj.weight"] = linear(kv, h)
            tensors[a + "v_proj.weight"] = linear(kv, h)
            tensors[a + "o_proj.weight"] = linear(h, q)
            tensors[a + "q_norm.weight"] = normal(spec.head_dim, scale=0.2)
            tensors[a + "k_norm.weight"] = normal(spec.head_dim, scale=0.2)
        else:
            d, heads = p + "linear_attn.", spec.value_heads
            value = heads * spec.value_dim
            tensors[d + "in_proj_qkv.weight"] = linear(spec.conv_channels, h)
            tensors[d + "in_proj_z.weight"] = linear(value, h)
            tensors[d + "in_proj_b.weight"] = linear(heads, h)
            tensors[d + "in_proj_a.weight"] = linear(heads, h)
            tensors[d + "conv1d.weight"] = normal(spec.conv_channels, 1, 4, scale=0.4)
            tensors[d + "A_log"] = np.log(rng.uniform(0.01, 8, heads)).astype(np.float32)
            tensors[d + "dt_bias"] = rng.uniform(-3, 1, heads).astype(np.float32)
            tensors[d + "norm.weight"] = 1 + normal(spec.value_dim, scale=0.2)
            tensors[d + "out_proj.weight"] = linear(h, value)
        m, e, i = p + "mlp.", spec.experts, spec.expert_width
        tensors[m + "gate.weight"] = linear(e, h, gain=2.0)
        tensors[m + "experts.gate_up_proj"] = normal(e, 2 * i, h, scale=h**-0.5)
        tensors[m + "experts.down_proj"] = normal(e, h, i, scale=i**-0.5)
        tensors[m + "shared_expert.gate_proj.weight"] = linear(spec.shared_width, h)
        tensors[m + "shared_expert.up_proj.weight"] = linear(spec.shared_width, h)
        tensors[m + "shared_expert.down_proj.weight"] = linear(h, spec.shared_width)
        tensors[m + "shared_expert_gate.weight"] = linear(1, h)
    return tensors


def rounded(tensors: Tensors) -> Tensors:
    """The same tensors stored as bf16."""
    return {name: to_bf16(values) for name, values in tensors.items()}


def text_config(spec: Spec) -> dict[str, Any]:
    """config.json of the text-only layout."""
    half = spec.rotary_dims // 2
    section = [half - 2 * (half // 3), half // 3, half // 3]
    kinds = {"delta": "linear_attention", "attention": "full_attention"}
    return {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "hidden_size": spec.hidden,
        "num_hidden_layers": len(spec.layer_types),
        "layer_types": [kinds[kind] for kind in spec.layer_types],
        "num_attention_heads": spec.q_heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "linear_num_key_heads": spec.key_heads,
        "linear_num_value_heads": spec.value_heads,
        "linear_key_head_dim": spec.key_dim,
        "linear_value_head_dim": spec.value_dim,
        "linear_conv_kernel_dim": 4,
        "num_experts": spec.experts,
        "num_experts_per_tok": spec.experts_per_token,
        "moe_intermediate_size": spec.expert_width,
        "shared_expert_intermediate_size": spec.shared_width,
        "vocab_size": spec.vocab,
        "max_position_embeddings": spec.max_positions,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "attn_output_gate": True,
        "tie_word_embeddings": spec.tied,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": spec.rope_theta,
            "partial_rotary_factor": spec.rotary_dims / spec.head_dim,
            "mrope_section": section,
            "mrope_interleaved": True,
        },
        "eos_token_id": spec.vocab - 1,
        "dtype": "float32",
        **spec.extra,
    }


def hub_config(spec: Spec) -> dict[str, Any]:
    """config.json as on the hub: the text model inside a multimodal one."""
    text = text_config(spec)
    text.pop("architectures")
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "tie_word_embeddings": spec.tied,
        "text_config": text,
    }


def hub_tensors(spec: Spec, tensors: Tensors, *, with_extras: bool = False) -> Tensors:
    """Hub names; with_extras adds what text generation does not read: `mtp.*`, `model.visual.*`."""
    result = {
        name.replace("model.", "model.language_model.", 1): values
        for name, values in tensors.items()
    }
    if with_extras:
        result["mtp.fc.weight"] = np.ones((spec.hidden, 2 * spec.hidden), np.float32)
        result["mtp.norm.weight"] = np.zeros(spec.hidden, np.float32)
        result["model.visual.patch_embed.proj.weight"] = np.ones((8, 3, 2, 2, 2), np.float32)
    return result


@dataclass(frozen=True)
class Quant:
    """An affine format: bits a code, columns a group."""

    bits: int = 4
    group: int = 64


def quantise(values: Array, quant: Quant) -> tuple[Array, Array, Array]:
    """Codes packed low bits first in uint32, and bf16 scales and biases, a pair per group."""
    groups = values.reshape(*values.shape[:-1], -1, quant.group)
    low, high = groups.min(-1), groups.max(-1)
    levels = 2**quant.bits - 1
    scales = to_bf16(np.maximum((high - low) / levels, 1e-6))
    biases = to_bf16(low)
    scale, bias = from_bf16(scales)[..., None], from_bf16(biases)[..., None]
    codes = np.clip(np.rint((groups - bias) / scale), 0, levels).astype(np.uint32)
    lanes = codes.reshape(*values.shape[:-1], -1, 32 // quant.bits)
    shifts = (np.arange(32 // quant.bits) * quant.bits).astype(np.uint32)
    return (lanes << shifts).sum(-1, dtype=np.uint32), scales, biases


def dequantise(weight: Array, scales: Array, biases: Array, quant: Quant) -> NDArray[np.float32]:
    shifts = (np.arange(32 // quant.bits) * quant.bits).astype(np.uint32)
    codes = (weight[..., None] >> shifts) & np.uint32(2**quant.bits - 1)
    groups = codes.reshape(*scales.shape, quant.group).astype(np.float32)
    values = groups * from_bf16(scales)[..., None] + from_bf16(biases)[..., None]
    return values.reshape(*weight.shape[:-1], -1).astype(np.float32)


@dataclass
class MlxCheckpoint:
    """A quantised checkpoint in MLX's layout, and the HF checkpoint of exactly its values."""

    tensors: Tensors
    config: dict[str, Any]
    same_in_hf: Tensors  # float32, text-only names


def mlx_checkpoint(
    spec: Spec,
    tensors: Tensors,
    quant: Quant,
    overrides: dict[str, Quant | None] | None = None,
    *,
    key: str = "quantization",
) -> MlxCheckpoint:
    """Overrides: the end of a module's path -> its own format, None for not quantised."""
    overrides = {"mlp.gate": Quant(8), "mlp.shared_expert_gate": Quant(8)} | (overrides or {})
    written: Tensors = {}
    same: Tensors = {}
    settings: dict[str, Any] = {"group_size": quant.group, "bits": quant.bits, "mode": "affine"}

    def put(module: str, values: Array) -> NDArray[np.float32]:
        own = next((q for end, q in overrides.items() if module.endswith(end)), quant)
        if own is None or values.shape[-1] % own.group:
            written[module + ".weight"] = to_bf16(values)
            if own is None:
                settings[module] = False
            return from_bf16(written[module + ".weight"])
        if own != quant:
            settings[module] = {"group_size": own.group, "bits": own.bits}
        parts = quantise(values, own)
        for suffix, part in zip((".weight", ".scales", ".biases"), parts, strict=True):
            written[module + suffix] = part
        return dequantise(*parts, own)

    for name, values in tensors.items():
        full = "language_model." + name
        if name.endswith("experts.gate_up_proj"):
            prefix = full.replace("experts.gate_up_proj", "switch_mlp.")
            halves = np.split(values, 2, axis=1)
            stored = [
                put(prefix + p, h) for p, h in zip(("gate_proj", "up_proj"), halves, strict=True)
            ]
            same[name] = np.concatenate(stored, axis=1)
        elif name.endswith("experts.down_proj"):
            same[name] = put(full.replace("experts.down_proj", "switch_mlp.down_proj"), values)
        elif values.ndim == 2:
            same[name] = put(full.removesuffix(".weight"), values)
        elif name.endswith("conv1d.weight"):
            written[full] = to_bf16(values.transpose(0, 2, 1))
            same[name] = from_bf16(to_bf16(values))
        elif "norm" in name and "linear_attn" not in name:
            written[full] = to_bf16(1 + values)  # MLX stores the gain itself
            same[name] = from_bf16(written[full]) - 1
        else:
            written[full] = to_bf16(values)
            same[name] = from_bf16(written[full])
    return MlxCheckpoint(written, hub_config(spec) | {key: settings}, same)


_TYPES = {"float32": "F32", "uint16": "BF16", "uint32": "U32", "float16": "F16", "int64": "I64"}


def write_safetensors(path: Path, tensors: Tensors, *, pad: int = 8) -> None:
    """`pad`: to what the header's length is rounded up; writers use 8."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": _TYPES[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [offset, offset + values.nbytes],
        }
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % pad)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            file.write(np.ascontiguousarray(values).tobytes())


def write_checkpoint(
    folder: Path, config: dict[str, Any], tensors: Tensors, *, shards: int = 1, pad: int = 8
) -> Path:
    """A folder with config.json and `shards` safetensors files, an index beside several."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, pad=pad)
        return folder
    names = list(tensors)
    index = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        write_safetensors(folder / file, part, pad=pad)
        index |= dict.fromkeys(part, file)
    table = {"metadata": {}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(table))
    return folder


def write_text_only(folder: Path, spec: Spec, tensors: Tensors, **options: Any) -> Path:
    return write_checkpoint(folder, text_config(spec), tensors, **options)
