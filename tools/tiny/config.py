"""Shapes of the trained models and their Hugging Face configuration.

Owns the presets and the special tokens. Knows neither PyTorch nor the data.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

# The special tokens of Qwen3.6, in their order; the ids start after the learned merges.
SPECIAL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>",
    "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
    "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>",
    "<tts_text_bos_single>", "<|audio_pad|>",
)  # fmt: skip
# Tokens that stay in decoded text although they are single ids, as in Qwen3.6.
VISIBLE_TOKENS = frozenset(SPECIAL_TOKENS[14:26])


@dataclass(frozen=True)
class Shape:
    """Everything that decides the parameter shapes. Every dimension is a multiple of 64."""

    hidden_size: int
    num_hidden_layers: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int = 128
    shared_expert_intermediate_size: int = 128
    num_attention_heads: int = 2
    num_key_value_heads: int = 1
    head_dim: int = 256
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    linear_conv_kernel_dim: int = 4
    vocab_size: int = 6144
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e7
    partial_rotary_factor: float = 0.25
    full_attention_interval: int = 4

    @property
    def layer_types(self) -> list[str]:
        every = self.full_attention_interval
        return ["full_attention" if (i + 1) % every == 0 else "linear_attention"
                for i in range(self.num_hidden_layers)]  # fmt: skip


PRESETS = {
    "nano": Shape(128, 4, 4, 2, moe_intermediate_size=64, shared_expert_intermediate_size=64),
    "tiny": Shape(384, 8, 12, 4),
}
MAX_POSITIONS = 8192


def hf_config(shape: Shape, im_end: int, end_of_text: int, mtp: bool) -> dict[str, Any]:
    """config.json in the layout of the real checkpoint (`text_config` inside)."""
    fields = asdict(shape)
    theta, partial = fields.pop("rope_theta"), fields.pop("partial_rotary_factor")
    text = fields | {
        "model_type": "qwen3_5_moe_text", "hidden_act": "silu", "attention_bias": False,
        "attention_dropout": 0.0, "attn_output_gate": True, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": MAX_POSITIONS, "tie_word_embeddings": False,
        "initializer_range": 0.02, "router_aux_loss_coef": 0.001, "output_router_logits": False,
        "layer_types": shape.layer_types, "mtp_num_hidden_layers": int(mtp),
        "partial_rotary_factor": partial, "use_cache": True, "dtype": "bfloat16",
        "rope_parameters": {
            "rope_type": "default", "rope_theta": theta, "partial_rotary_factor": partial,
            "mrope_section": [11, 11, 10], "mrope_interleaved": True,
        },
        "bos_token_id": None, "eos_token_id": im_end, "pad_token_id": end_of_text,
    }  # fmt: skip
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
        "text_config": text, "tie_word_embeddings": False, "dtype": "bfloat16",
        "eos_token_id": im_end, "pad_token_id": end_of_text,
    }  # fmt: skip
