"""Weights in half the bytes, for the way to the training machine and back.

This file owns that form: matrices as bytes with a float16 step and lowest value for every 32
numbers, all else float16, in one compressed .npz, which may be cut into parts. It is not the
shipped form (FORMAT.md).
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import torch

GROUP = 32
PART_BYTES = 15 << 20


def pack(state: dict[str, torch.Tensor]) -> bytes:
    """The state dict as one file."""
    arrays: dict[str, np.ndarray] = {}
    for name, value in state.items():
        array = value.detach().float().cpu().numpy()
        if array.ndim < 2 or array.size < 1 << 16 or array.shape[-1] % GROUP:
            arrays[name] = array.astype(np.float16)
            continue
        rows = array.reshape(-1, GROUP)
        low = rows.min(1, keepdims=True).astype(np.float16)
        step = ((rows.max(1, keepdims=True) - low.astype(np.float32)) / 255).astype(np.float16)
        scale = np.maximum(step.astype(np.float32), 1e-8)
        codes = np.clip(np.rint((rows - low.astype(np.float32)) / scale), 0, 255)
        arrays[name] = codes.astype(np.uint8).reshape(array.shape)
        arrays[name + ":low"], arrays[name + ":step"] = low, step
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def unpack(data: bytes) -> dict[str, torch.Tensor]:
    """What `pack` wrote, as float32."""
    out: dict[str, torch.Tensor] = {}
    with np.load(io.BytesIO(data)) as arrays:
        for name in arrays.files:
            if ":" in name:
                continue
            value = arrays[name].astype(np.float32)
            if name + ":low" in arrays.files:
                step, low = (arrays[name + end].astype(np.float32) for end in (":step", ":low"))
                value = (value.reshape(-1, GROUP) * step + low).reshape(value.shape)
            out[name] = torch.from_numpy(value)
    return out


def write_parts(data: bytes, stem: Path) -> None:
    """`stem.0`, `stem.1`, ... of at most 15 MiB each."""
    for i in range(0, len(data), PART_BYTES):
        Path(f"{stem}.{i // PART_BYTES}").write_bytes(data[i : i + PART_BYTES])


def read_parts(stem: Path) -> bytes:
    """The file that `write_parts` cut."""
    parts = sorted(stem.parent.glob(stem.name + ".[0-9]"))
    return b"".join(part.read_bytes() for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Packs the encoder of a BERT checkpoint for train.py."
    )
    parser.add_argument(
        "--bert", type=Path, required=True, help="model.safetensors of MiniLM-L6-H384"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    from safetensors.torch import load_file

    from model import from_bert

    args.out.write_bytes(pack(from_bert(load_file(args.bert))))


if __name__ == "__main__":
    main()
