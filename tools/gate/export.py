"""Writes the folder of FORMAT.md from trained weights, or from random ones to try a reader with.

This file owns the stored form. It knows no training and no policy.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import labels
import numpy as np
import torch
import transport
from lily.convert import quantise
from safetensors.torch import save_file

from model import (
    CLS,
    EPS,
    FORMS,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    LAYERS,
    OVERLAP,
    SEP,
    UNK,
    VOCAB,
    WINDOW,
    GateModel,
)

BITS, GROUP = 8, 64
WORDS = (
    "embeddings.word.weight"  # half of all weights; 4 bits cost no figure of the card 0.5 points
)
WORD_BITS, WORD_GROUP = 4, 32


def is_quantised(name: str) -> bool:
    """Whether FORMAT.md stores this matrix in 8 bits, or the table of words in 4."""
    matrices = ("query", "key", "value", "output", "up", "down")
    inside = name.startswith("layers.") and name.split(".")[-2] in matrices
    return name.endswith(".weight") and (inside or name == WORDS)


def form_of(name: str) -> tuple[int, int]:
    """Bits and group of a quantised matrix."""
    return (WORD_BITS, WORD_GROUP) if name == WORDS else (BITS, GROUP)


def stored(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of model.safetensors."""
    out: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        value = value.float().contiguous()
        if not is_quantised(name):
            out[name] = value
            continue
        words, scales, biases = quantise(value.numpy().astype(np.float32), *form_of(name))
        stem = name.removesuffix("weight")
        out[name] = torch.from_numpy(words.view(np.int32)).view(torch.uint32)
        out[stem + "scales"] = torch.from_numpy(scales).to(torch.bfloat16)
        out[stem + "biases"] = torch.from_numpy(biases).to(torch.bfloat16)
    return out


def restored(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The float32 weights that a reader of model.safetensors computes with."""
    out: dict[str, torch.Tensor] = {}
    for name, value in tensors.items():
        if name.endswith((".scales", ".biases")):
            continue
        if not is_quantised(name):
            out[name] = value
            continue
        stem = name.removesuffix("weight")
        bits, group = form_of(name)
        codes = torch.from_numpy(value.view(torch.int32).numpy().view(np.uint8))
        if bits == 4:
            codes = torch.stack((codes & 15, codes >> 4), -1).flatten(1)
        rows = codes.float().view(codes.shape[0], -1, group)
        scales, biases = tensors[stem + "scales"].float(), tensors[stem + "biases"].float()
        out[name] = (rows * scales[..., None] + biases[..., None]).view(codes.shape)
    return out


def config(calibration: dict[str, object], digest: str) -> dict[str, object]:
    """config.json; `calibration` has its parts `decode` and `document`."""
    return {
        "model_type": "lily_gate", "layers": LAYERS, "hidden": HIDDEN, "heads": HEADS,
        "intermediate": INTERMEDIATE, "vocab": VOCAB, "layer_norm_eps": EPS,
        "window_tokens": WINDOW, "overlap_tokens": OVERLAP, "forms": FORMS,
        "cls_id": CLS, "sep_id": SEP, "unk_id": UNK,
        "quantisation": {"bits": BITS, "group_size": GROUP},
        "labels": list(labels.LABELS), "topics": list(labels.TOPICS),
        "subjects": list(labels.SUBJECTS),
        **calibration, "weights_sha256": digest,
    }  # fmt: skip


def uncalibrated() -> dict[str, dict[str, Any]]:
    """Neutral values for a model that no development set has seen."""
    return {
        "decode": {
            "outside_offset": 0.0,
            "label_offsets": dict.fromkeys(labels.LABELS, 0.0),
            "thresholds": dict.fromkeys(labels.LABELS, 0.0),
        },
        "document": {
            "topic_temperature": 1.0,
            "subject_temperature": 1.0,
            "thresholds": dict.fromkeys(labels.TOPICS, 0.5),
        },
    }


def write(
    folder: Path, state: dict[str, torch.Tensor], calibration: dict[str, object], tokenizer: Path
) -> None:
    """Fills `folder`; the digest in config.json is of the file as written."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(stored(state), folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)  # save_file leaves it to its owner alone
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    text = json.dumps(config(calibration, digest), indent=1)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    shutil.copyfile(tokenizer, folder / "tokenizer.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=Path, help="what train.py left, without .0 and .1")
    parser.add_argument("--random", action="store_true", help="random weights instead")
    parser.add_argument("--calibration", type=Path, help="JSON of evaluate.py calibrate")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    calibration = json.loads(args.calibration.read_text()) if args.calibration else uncalibrated()
    if args.random:
        torch.manual_seed(0)
        model = GateModel(labels.TAGS, len(labels.TOPICS), len(labels.SUBJECTS))
        torch.nn.init.normal_(model.embeddings.form.weight)
        state = model.state_dict()
    else:
        state = transport.unpack(transport.read_parts(args.parts))
    write(args.out, dict(state), calibration, args.tokenizer)


if __name__ == "__main__":
    main()
