"""The real model's shapes as a GGUF for llama.cpp: 19.6 GB of random Q4_K blocks.

  python -m bench make-gguf OUT.gguf --gguf-py LLAMA_CPP/gguf-py

All matrices are Q4_K, which is what llama.cpp's own 4-bit mixtures use for most of a model; norms,
router and small vectors are fp32, as its converter leaves them. Values mean nothing, and are
slices of one pool of random blocks.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.shapes import MODELS, ModelShape

_BLOCK_WEIGHTS, _BLOCK_BYTES = 256, 144
_POOL_BLOCKS = 1 << 21


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m bench make-gguf``."""
    parser.add_argument("out", type=Path)
    parser.add_argument("--gguf-py", type=Path, help="folder of that name, of llama.cpp")
    parser.add_argument("--model", default="real", choices=MODELS)


def run(arguments: argparse.Namespace) -> None:
    """Write the file, unless it is there."""
    if arguments.out.exists():
        print(f"{arguments.out.name} is there")
        return
    if arguments.gguf_py:
        sys.path.insert(0, str(arguments.gguf_py))
    import gguf

    part = arguments.out.with_suffix(".part")
    writer = _Writer(gguf, part, MODELS[arguments.model])
    writer.write()
    part.rename(arguments.out)
    print(f"wrote {arguments.out.name}", flush=True)


class _Writer:
    def __init__(self, gguf: Any, path: Path, shape: ModelShape) -> None:
        self._gguf, self._shape = gguf, shape
        self._out = gguf.GGUFWriter(str(path), "qwen35moe")
        self._rng = np.random.default_rng(0)
        pool = self._rng.integers(0, 256, (_POOL_BLOCKS, _BLOCK_BYTES), dtype=np.uint8)
        scales = np.array([0.0008, 0.006], np.float16)  # of a block, and of its minimums
        pool[:, :4] = np.frombuffer(scales.tobytes(), np.uint8)
        pool[:, 4:16] = self._rng.integers(0, 16, (_POOL_BLOCKS, 12), dtype=np.uint8)
        self._pool = pool

    def write(self) -> None:
        """Header and tensors."""
        self._settings()
        shape = self._shape
        self._matrix("token_embd", shape.vocab, shape.hidden)
        self._matrix("output", shape.vocab, shape.hidden)
        self._vector("output_norm.weight", shape.hidden)
        for index in range(shape.layers):
            self._mixer(f"blk.{index}.", shape.is_attention(index))
            self._experts(f"blk.{index}.")
        self._out.write_header_to_file()
        self._out.write_kv_data_to_file()
        self._out.write_tensors_to_file()
        self._out.close()

    def _settings(self) -> None:
        shape, out = self._shape, self._out
        out.add_block_count(shape.layers)
        out.add_context_length(262_144)
        out.add_embedding_length(shape.hidden)
        out.add_head_count(shape.q_heads)
        out.add_head_count_kv(shape.kv_heads)
        out.add_key_length(shape.head_dim)
        out.add_value_length(shape.head_dim)
        out.add_layer_norm_rms_eps(shape.rms_eps)
        out.add_rope_freq_base(shape.rope_theta)
        out.add_rope_dimension_count(shape.head_dim // 4)
        out.add_rope_dimension_sections([11, 11, 10, 0])
        out.add_expert_count(shape.experts)
        out.add_expert_used_count(shape.slots)
        out.add_expert_feed_forward_length(shape.width)
        out.add_expert_shared_feed_forward_length(shape.shared_width)
        out.add_feed_forward_length(shape.width)
        out.add_ssm_conv_kernel(shape.conv_width)
        out.add_ssm_state_size(shape.key_dim)
        out.add_ssm_group_count(shape.key_heads)
        out.add_ssm_time_step_rank(shape.value_heads)
        out.add_ssm_inner_size(shape.value_width)
        out.add_uint32("qwen35moe.full_attention_interval", shape.attention_interval)
        out.add_vocab_size(shape.vocab)
        out.add_tokenizer_model("no_vocab")
        out.add_file_type(self._gguf.LlamaFileType.MOSTLY_Q4_K_M)

    def _mixer(self, layer: str, is_attention: bool) -> None:
        shape = self._shape
        hidden, kv_width = shape.hidden, shape.kv_width
        self._vector(f"{layer}attn_norm.weight", hidden)
        self._vector(f"{layer}post_attention_norm.weight", hidden)
        if is_attention:
            self._matrix(f"{layer}attn_q", 2 * shape.q_width, hidden)
            self._matrix(f"{layer}attn_k", kv_width, hidden)
            self._matrix(f"{layer}attn_v", kv_width, hidden)
            self._matrix(f"{layer}attn_output", hidden, shape.q_width)
            self._vector(f"{layer}attn_q_norm.weight", shape.head_dim)
            self._vector(f"{layer}attn_k_norm.weight", shape.head_dim)
            return
        self._matrix(f"{layer}attn_qkv", shape.channels, hidden)
        self._matrix(f"{layer}attn_gate", shape.value_width, hidden)
        self._random(f"{layer}ssm_conv1d.weight", 0.3, shape.channels, shape.conv_width)
        self._vector(f"{layer}ssm_dt.bias", shape.value_heads)
        decay = -self._rng.uniform(0.01, 8.0, shape.value_heads)  # stored as -exp(A_log)
        self._out.add_tensor(f"{layer}ssm_a", decay.astype(np.float32))
        self._matrix(f"{layer}ssm_beta", shape.value_heads, hidden)
        self._matrix(f"{layer}ssm_alpha", shape.value_heads, hidden)
        self._vector(f"{layer}ssm_norm.weight", shape.key_dim)
        self._matrix(f"{layer}ssm_out", hidden, shape.value_width)

    def _experts(self, layer: str) -> None:
        shape = self._shape
        self._random(f"{layer}ffn_gate_inp.weight", 0.02, shape.experts, shape.hidden)
        self._random(f"{layer}ffn_gate_inp_shexp.weight", 0.02, shape.hidden)
        for name in ("gate", "up"):
            self._matrix(f"{layer}ffn_{name}_exps", shape.experts, shape.width, shape.hidden)
            self._matrix(f"{layer}ffn_{name}_shexp", shape.shared_width, shape.hidden)
        self._matrix(f"{layer}ffn_down_exps", shape.experts, shape.hidden, shape.width)
        self._matrix(f"{layer}ffn_down_shexp", shape.hidden, shape.shared_width)

    def _matrix(self, name: str, *dims: int) -> None:
        blocks = math.prod(dims) // _BLOCK_WEIGHTS
        if blocks <= _POOL_BLOCKS:
            begin = int(self._rng.integers(0, _POOL_BLOCKS - blocks + 1))
            data = self._pool[begin : begin + blocks]
        else:
            data = np.resize(self._pool, (blocks, _BLOCK_BYTES))
        stored = (*dims[:-1], dims[-1] // _BLOCK_WEIGHTS * _BLOCK_BYTES)
        kind = self._gguf.GGMLQuantizationType.Q4_K
        self._out.add_tensor(f"{name}.weight", data.reshape(stored), raw_dtype=kind)

    def _vector(self, name: str, count: int) -> None:
        self._out.add_tensor(name, np.ones(count, np.float32))

    def _random(self, name: str, scale: float, *dims: int) -> None:
        values: NDArray[np.float32] = self._rng.standard_normal(dims, dtype=np.float32)
        self._out.add_tensor(name, values * np.float32(scale))
