"""The three sizes of model that are measured: the real one, the packaged one, and one between.

Numbers and what follows from them (widths, configuration); knows no kernel and no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lily.doctor import shapes as checked


@dataclass(frozen=True, kw_only=True)
class ModelShape(checked.ModelShape):
    """The shapes of single kernels, and the numbers that make a whole model of them."""

    layers: int
    max_positions: int = 32768
    attention_interval: int = 4
    rope_theta: float = 1e7
    rms_eps: float = 1e-6

    @property
    def shared_width(self) -> int:
        """Of the shared expert: as wide as one of the others, in all these models."""
        return self.width

    @property
    def kv_width(self) -> int:
        """All KV heads side by side."""
        return self.kv_heads * self.head_dim

    @property
    def delta_columns(self) -> int:
        """A row of the delta net's projections: qkv, z, b, a."""
        return sum(self.delta_rows)

    @property
    def attention_columns(self) -> int:
        """A row of the attention's projections: query and gate, k, v."""
        return sum(self.attention_rows)

    def is_attention(self, layer: int) -> bool:
        """Whether this layer has full attention."""
        return (layer + 1) % self.attention_interval == 0

    def hf_config(self) -> dict[str, Any]:
        """config.json as on the hub, without the vision tower and without an MTP head."""
        # Three sections of the rotated pairs, in the proportions of the real model (11, 11, 10).
        pairs = self.rotary_dims // 2
        side = round(pairs * 11 / 32)
        kinds = ("linear_attention", "full_attention")
        text = {
            "model_type": "qwen3_5_moe_text",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "layer_types": [kinds[self.is_attention(layer)] for layer in range(self.layers)],
            "full_attention_interval": self.attention_interval,
            "num_attention_heads": self.q_heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "attn_output_gate": True,
            "linear_num_key_heads": self.key_heads,
            "linear_num_value_heads": self.value_heads,
            "linear_key_head_dim": self.key_dim,
            "linear_value_head_dim": self.value_dim,
            "linear_conv_kernel_dim": self.conv_width,
            "mamba_ssm_dtype": "float32",
            "num_experts": self.experts,
            "num_experts_per_tok": self.slots,
            "moe_intermediate_size": self.width,
            "shared_expert_intermediate_size": self.shared_width,
            "hidden_act": "silu",
            "rms_norm_eps": self.rms_eps,
            "max_position_embeddings": self.max_positions,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.rope_theta,
                "partial_rotary_factor": 0.25,
                "mrope_section": [pairs - 2 * side, side, side],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": False,
            "use_cache": True,
            "dtype": "bfloat16",
        }
        return {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"],
            "model_type": "qwen3_5_moe",
            "text_config": text,
            "tie_word_embeddings": False,
        }


REAL = ModelShape(**vars(checked.REAL), layers=40, max_positions=262_144)
MID = ModelShape(
    name="mid", hidden=1024, layers=12, q_heads=8, kv_heads=2, head_dim=128, key_heads=8,
    value_heads=16, key_dim=128, value_dim=128, experts=64, slots=8, width=256, vocab=32_768,
)  # fmt: skip
TINY = ModelShape(**vars(checked.TINY), layers=8, max_positions=8192)

MODELS = {"real": REAL, "mid": MID, "tiny": TINY}
