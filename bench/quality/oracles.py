"""Engines that score the same tokens: Lily, transformers and mlx-lm, behind one small interface.

This file owns how each is driven in float32 on the CPU, and the way from an MLX 4-bit file back to
the float32 weights that it stands for. It knows no measure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from lily.tensorfile import open_checkpoint, to_float32
from numpy.typing import NDArray

Tokens = NDArray[np.uint32]
Logits = NDArray[np.float32]


class Oracle(Protocol):
    """Logits ``[tokens, vocab]`` of a row, and greedy tokens behind a prompt."""

    def logits(self, tokens: Tokens) -> Logits: ...

    def greedy(self, prompt: Tokens, count: int) -> list[int]: ...


class Lily:
    """The engine's own logits, prefix cache off."""

    def __init__(self, folder: Path) -> None:
        from lily import _native

        self._session = _native.Engine(str(folder), device="cpu", cache_bytes=0).session()
        self._session.set_sampler(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)

    def logits(self, tokens: Tokens) -> Logits:
        return self._session.all_logits(tokens.tolist())

    def greedy(self, prompt: Tokens, count: int) -> list[int]:
        self._session.prefill(prompt.tolist())
        out, draw = [], self._session.sampled()
        for _ in range(count):
            out.append(draw.token_id)
            draw = self._session.step(draw.token_id)
        return out


class Transformers:
    """transformers in float32, on a bf16 folder or on the dequantised weights of a 4-bit one."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        self._torch = torch
        quantised = any(name.endswith(".scales") for name in open_checkpoint(folder))
        if quantised:
            config = AutoConfig.from_pretrained(folder).get_text_config()
            self._model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            state = {name: torch.from_numpy(w) for name, w in dequantised(folder).items()}
            self._model.load_state_dict(state, strict=True)
        else:
            self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model.eval()

    def logits(self, tokens: Tokens) -> Logits:
        with self._torch.no_grad():
            ids = self._torch.from_numpy(tokens.astype(np.int64))[None]
            out: Logits = self._model(ids, use_cache=False).logits[0].numpy()
        return out

    def greedy(self, prompt: Tokens, count: int) -> list[int]:
        with self._torch.no_grad():
            ids = self._torch.from_numpy(prompt.astype(np.int64))[None]
            past, out = None, []
            for _ in range(count):
                step = self._model(ids, past_key_values=past, use_cache=True)
                past, ids = step.past_key_values, step.logits[:, -1:].argmax(-1)
                out.append(int(ids))
        return out


class MlxLm:
    """mlx-lm on an MLX folder, with float32 activations."""

    def __init__(self, folder: Path) -> None:
        import mlx.core as mx
        from mlx_lm.utils import load_model

        mx.set_default_device(mx.cpu)
        self._mx = mx
        self._model, _ = load_model(folder, lazy=False, strict=False)
        self._model.set_dtype(mx.float32)

    def logits(self, tokens: Tokens) -> Logits:
        ids = self._mx.array(tokens.astype(np.int32))[None]
        return np.array(self._model(ids)[0].astype(self._mx.float32))

    def greedy(self, prompt: Tokens, count: int) -> list[int]:
        from mlx_lm.models.cache import make_prompt_cache

        cache = make_prompt_cache(self._model)
        ids, out = self._mx.array(prompt.astype(np.int32))[None], []
        for _ in range(count):
            out.append(int(self._model(ids, cache=cache)[0, -1].argmax()))
            ids = self._mx.array([[out[-1]]])
        return out


def dequantised(folder: Path) -> dict[str, NDArray[np.float32]]:
    """An MLX affine folder as float32 tensors under the text-only names of transformers.

    Norms come back zero-centred: 1 + (stored - 1) is exact in float32 for a bf16 near 1.
    """
    sources = open_checkpoint(folder)
    stacks: dict[str, dict[str, NDArray[np.float32]]] = {}
    state: dict[str, NDArray[np.float32]] = {}
    for name in sources:
        if name.endswith((".scales", ".biases")) or "mtp." in name:
            continue
        value = _values(sources, name)
        short = name.removeprefix("language_model.")
        if "conv1d" in name:
            value = np.ascontiguousarray(value.swapaxes(-1, -2))
        elif "norm" in name and "linear_attn.norm" not in name:
            value = value - np.float32(1)
        if ".switch_mlp." in short:
            layer, part = short.split(".switch_mlp.")
            stacks.setdefault(layer, {})[part.split("_")[0]] = value
        else:
            state[short] = value
    for layer, parts in stacks.items():
        both = np.concatenate([parts["gate"], parts["up"]], axis=1)
        state[f"{layer}.experts.gate_up_proj"] = both
        state[f"{layer}.experts.down_proj"] = parts["down"]
    return state


def _values(sources: dict[str, Any], name: str) -> NDArray[np.float32]:
    raw = np.asarray(sources[name].array())
    module = name.removesuffix(".weight")
    if f"{module}.scales" not in sources:
        return np.array(to_float32(raw, sources[name].dtype))
    scales = to_float32(np.asarray(sources[f"{module}.scales"].array()), "BF16")
    biases = to_float32(np.asarray(sources[f"{module}.biases"].array()), "BF16")
    # Bits follow from the sizes: a word holds 32 / bits codes, and the groups here are of 64.
    columns = scales.shape[-1] * 64
    bits = raw.shape[-1] * 32 // columns
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    codes = (raw[..., None] >> shifts) & np.uint32(2**bits - 1)
    grouped = codes.reshape(*scales.shape, 64).astype(np.float32)
    weights = grouped * scales[..., None] + biases[..., None]
    return np.ascontiguousarray(weights.reshape(*raw.shape[:-1], columns))
