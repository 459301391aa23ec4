"""The gate's network for onnxruntime: built in torch from the same file, exported, and quantised.

This file owns the peer and its arguments' order; it knows no timing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional


def sessions(model: Path, folder: Path, threads: int) -> dict[str, Callable[..., object]]:
    """Runners with the arguments of `Encoder.run`, for windows of equal length."""
    exact, int8 = folder / "encoder.onnx", folder / "encoder-int8.onnx"
    network = Network(model).eval()
    # Two tensors: the exporter takes one that is given twice for one input.
    ids, forms = (torch.zeros((2, 16), dtype=torch.int64) for _ in range(2))
    axes = {0: torch.export.Dim("windows"), 1: torch.export.Dim("rows", max=network.window)}
    torch.onnx.export(
        network, (ids, forms), str(exact), dynamic_shapes=(axes, axes), dynamo=True, verbose=False
    )
    quantize_dynamic(str(exact), str(int8), weight_type=QuantType.QInt8)
    return {
        "onnxruntime fp32": _runner(exact, threads),
        "onnxruntime int8": _runner(int8, threads),
    }


def _runner(path: Path, threads: int) -> Callable[..., object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(ids: np.ndarray, forms: np.ndarray, lengths: np.ndarray) -> object:
        rows = int(lengths[0])
        found = []
        for begin in range(0, len(ids), 8 * rows):  # as many rows at a time as Lily takes
            part = slice(begin, begin + 8 * rows)
            shaped = [each[part].astype(np.int64).reshape(-1, rows) for each in (ids, forms)]
            found.append(session.run(None, dict(zip(names, shaped, strict=True))))
        return found

    return run


class Network(nn.Module):
    """(ids, forms), each [windows, rows] -> token logits, document logits."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        config = json.loads((folder / "config.json").read_text())
        self.layers, self.heads = config["layers"], config["heads"]
        self.window, self.eps = config["window_tokens"], config["layer_norm_eps"]
        tensors = load_file(folder / "model.safetensors")
        for name, tensor in _decoded(tensors, config["quantisation"]["group_size"]).items():
            self.register_buffer(name.replace(".", "_"), tensor)

    def forward(self, ids: torch.Tensor, forms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As FORMAT of the model says."""
        x = self._w("embeddings.word.weight")[ids] + self._w("embeddings.form.weight")[forms]
        x = x + self._w("embeddings.position.weight")[: ids.shape[1]]
        x = self._norm(x, "embeddings.norm")
        for index in range(self.layers):
            x = self._layer(x, f"layers.{index}.")
        pooled = torch.cat([x.mean(1), x.amax(1)], -1)
        dense = functional.gelu(self._linear(pooled, "document.dense"))
        return self._linear(x, "token"), self._linear(dense, "document.output")

    def _layer(self, x: torch.Tensor, name: str) -> torch.Tensor:
        def heads(part: str) -> torch.Tensor:
            y = self._linear(x, f"{name}attention.{part}")
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(*map(heads, ("query", "key", "value")))
        out = self._linear(mixed.transpose(1, 2).flatten(2), f"{name}attention.output")
        x = self._norm(x + out, f"{name}attention.norm")
        up = functional.gelu(self._linear(x, f"{name}mlp.up"))
        return self._norm(x + self._linear(up, f"{name}mlp.down"), f"{name}mlp.norm")

    def _w(self, name: str) -> torch.Tensor:
        return self.get_buffer(name.replace(".", "_"))

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, self._w(f"{name}.weight"), self._w(f"{name}.bias"))

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self._w(f"{name}.weight"), self._w(f"{name}.bias")
        return functional.layer_norm(x, weight.shape, weight, bias, self.eps)


def _decoded(tensors: dict[str, Any], group: int) -> dict[str, torch.Tensor]:
    """fp32 throughout."""
    plain = {}
    for name, tensor in tensors.items():
        module = name.rsplit(".", 1)[0]
        if name.endswith(".weight") and f"{module}.scales" in tensors:
            scales, biases = (tensors[f"{module}.{part}"].float() for part in ("scales", "biases"))
            codes = tensor.view(torch.uint8)
            if module == "embeddings.word":  # two codes a byte, low bits first
                codes = torch.stack((codes & 15, codes >> 4), -1).flatten(1)
            codes = codes.float().unflatten(-1, (scales.shape[1], -1))
            plain[name] = (codes * scales[..., None] + biases[..., None]).flatten(1)
        elif not name.endswith((".scales", ".biases")):
            plain[name] = tensor
    return plain
