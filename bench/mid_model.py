"""A random checkpoint of the architecture in the hub's bf16 layout, by NumPy alone.

Weights have the scales of a trained model's, so that activations stay of order one through all
layers, and the router prefers some experts. The tokenizer is one byte a token: enough for every
converter, of no use to a reader. Values depend on the seed and the tensor's name alone.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from lily.tensorfile import TensorSpec
from numpy.typing import NDArray

from bench.checkpoint_files import (
    hf_tensors,
    write_index,
    write_json,
    write_safetensors,
)
from bench.kernel_memory import to_bf16
from bench.shapes import ModelShape

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_ROWS_AT_ONCE = 1 << 24  # numbers drawn at a time: float64-free, and small in memory


def write_checkpoint(folder: Path, shape: ModelShape, seed: int = 0) -> None:
    """Weights, configuration and tokenizer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = list(hf_tensors(shape))
    name = "model.safetensors"
    write_safetensors(
        folder / name, tensors, {"format": "pt"}, lambda spec: random_tensor(spec, seed)
    )
    end = shape.vocab - len(_SPECIAL) + _SPECIAL.index("<|im_end|>")
    config = shape.hf_config()
    config["text_config"]["eos_token_id"] = end
    config["eos_token_id"] = end
    write_index(folder, {name: tensors}, config)
    write_json(folder / "generation_config.json", {"eos_token_id": end, "do_sample": False})
    write_tokenizer(folder, shape.vocab)


def random_tensor(spec: TensorSpec, seed: int) -> NDArray[np.uint16]:
    """bf16 bits of one tensor."""
    rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    count, leaf = int(np.prod(spec.shape)), spec.name.rsplit(".", 2)
    if leaf[-1] == "A_log":
        return to_bf16(np.log(rng.uniform(0.01, 8.0, count)).astype(np.float32))
    if leaf[-1] == "dt_bias":
        return to_bf16(rng.uniform(-3.0, 1.0, count).astype(np.float32))
    mean, scale = _mean_and_scale(spec)
    parts = []
    for begin in range(0, count, _ROWS_AT_ONCE):
        size = min(_ROWS_AT_ONCE, count - begin)
        drawn = rng.standard_normal(size, dtype=np.float32)
        parts.append(to_bf16(drawn * np.float32(scale) + np.float32(mean)))
    return np.concatenate(parts)


def _mean_and_scale(spec: TensorSpec) -> tuple[float, float]:
    name = spec.name
    if name.endswith("linear_attn.norm.weight"):
        return 1.0, 0.2  # the one norm that HF stores as it is used
    if "norm" in name:
        return 0.0, 0.2  # the others: distance from one
    if name.endswith("conv1d.weight"):
        return 0.0, 0.4
    if name.endswith("embed_tokens.weight"):
        return 0.0, 1.0
    fan_in = 1 / math.sqrt(spec.shape[-1])
    return 0.0, 2 * fan_in if name.endswith("mlp.gate.weight") else fan_in


def _byte_names() -> dict[int, str]:
    """How byte-level BPE spells each byte: itself where it can be seen, else moved past 255."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    names = {byte: chr(byte) for byte in seen}
    return names | {byte: chr(256 + place) for place, byte in enumerate(hidden)}


def write_tokenizer(folder: Path, vocab: int) -> None:
    """One byte a token, then words that no text holds."""
    names = _byte_names()
    ids = {names[byte]: byte for byte in range(256)}
    ids["th"] = len(ids)  # llama.cpp wants at least one merge
    while len(ids) < vocab - len(_SPECIAL):
        ids[f"tok{len(ids)}"] = len(ids)
    added = [
        {"id": len(ids) + place, "content": content, "special": True, "normalized": False,
         "single_word": False, "lstrip": False, "rstrip": False}
        for place, content in enumerate(_SPECIAL)
    ]  # fmt: skip
    byte_level: dict[str, Any] = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True
    }  # fmt: skip
    write_json(
        folder / "tokenizer.json",
        {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                "continuing_subword_prefix": None, "end_of_word_suffix": None,
                "byte_fallback": False, "ignore_merges": False,
                "vocab": ids, "merges": [["t", "h"]],
            },
        },
    )  # fmt: skip
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>", "model_max_length": 32768, "chat_template": _TEMPLATE,
        },
    )  # fmt: skip
