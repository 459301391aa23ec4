"""Training weights -> the hub layout of the real checkpoint, and the shipped 4-bit folder.

Owns names, the snapping of zero-centred norms and the files beside the weights (configuration,
tokenizer, template, generation defaults). The quantisation itself is `lily.convert`'s.

    python export.py --weights weights.safetensors --data DIR --hf HF_DIR --mlx MLX_DIR
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from config import MAX_POSITIONS, PRESETS, SPECIAL_TOKENS, VISIBLE_TOKENS, hf_config
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

HERE = Path(__file__).parent


def snap_norm(w: Tensor) -> Tensor:
    """The nearest w whose 1 + w is a bfloat16 number.

    MLX files store bf16(1 + w) and Hugging Face computes 1 + w in float32: with such a w both see
    the same gain. 1 + w being exact in bf16, w is a difference of two bf16 numbers; it is itself
    one whenever |w| >= 2^-8, and below that 1 + w has no finer step than 2^-8 anyway.
    """
    return (1 + w.float()).bfloat16().float() - 1


def is_zero_centred(name: str) -> bool:
    return "norm" in name.rsplit(".", 2)[-2] and "linear_attn.norm" not in name


def hub_tensors(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names of the real checkpoint: `model.language_model.*`, `lm_head.*`, `mtp.*`."""
    out: dict[str, Tensor] = {}
    for name, value in weights.items():
        if is_zero_centred(name):
            snapped = snap_norm(value)
            value = snapped.bfloat16()
            if not torch.equal(value.float(), snapped):
                raise ValueError(f"{name}: 1 + w is not exact in bfloat16")
        key = name.replace("model.", "model.language_model.", 1) if name.startswith(
            "model.") else name  # fmt: skip
        out[key] = value.bfloat16().contiguous()
    return out


def tokenizer_config(tok: Tokenizer) -> dict[str, Any]:
    """What transformers, mlx-lm and Lily need to know beside tokenizer.json."""
    added = {str(tok.token_to_id(t)): {
        "content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
        "special": t not in VISIBLE_TOKENS} for t in SPECIAL_TOKENS}  # fmt: skip
    return {
        "tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, "bos_token": None,
        "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
        "errors": "replace", "model_max_length": MAX_POSITIONS, "split_special_tokens": False,
        "clean_up_tokenization_spaces": False, "added_tokens_decoder": added,
        "additional_special_tokens": [t for t in SPECIAL_TOKENS if t not in VISIBLE_TOKENS],
    }  # fmt: skip


def generation_config(tok: Tokenizer) -> dict[str, Any]:
    ends = [tok.token_to_id("<|im_end|>"), tok.token_to_id("<|endoftext|>")]
    return {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.9,
            "eos_token_id": ends, "pad_token_id": ends[1]}  # fmt: skip


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder with tokenizer.json")
    parser.add_argument("--preset", choices=list(PRESETS), default="tiny")
    parser.add_argument("--hf", type=Path, required=True)
    parser.add_argument("--mlx", type=Path, help="also write the 4-bit folder; must not exist")
    args = parser.parse_args()
    args.hf.mkdir(parents=True, exist_ok=True)
    tensors = hub_tensors(load_file(str(args.weights)))
    save_file(tensors, str(args.hf / "model.safetensors"), metadata={"format": "pt"})
    tok = Tokenizer.from_file(str(args.data / "tokenizer.json"))
    im_end, end = tok.token_to_id("<|im_end|>"), tok.token_to_id("<|endoftext|>")
    write_json(args.hf / "config.json", hf_config(PRESETS[args.preset], im_end, end, mtp=True))
    write_json(args.hf / "tokenizer_config.json", tokenizer_config(tok))
    write_json(args.hf / "generation_config.json", generation_config(tok))
    shutil.copy(args.data / "tokenizer.json", args.hf)
    shutil.copy(HERE / "template.jinja", args.hf / "chat_template.jinja")
    if args.mlx:
        sys.path.insert(0, str(HERE.parents[1] / "python"))
        from lily.convert import convert

        print(convert(args.hf, args.mlx))


if __name__ == "__main__":
    main()
