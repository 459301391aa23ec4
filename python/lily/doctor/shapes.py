"""Shapes of the two models that are checked: the real one, and the one inside the package.

Plain numbers; knows no kernel and opens no file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """Every number that decides the shape of a tensor."""

    name: str
    hidden: int
    q_heads: int
    kv_heads: int
    head_dim: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    experts: int
    slots: int  # experts that one token chooses
    width: int  # of one expert, and of the shared one
    vocab: int
    conv_width: int = 4

    @property
    def value_width(self) -> int:
        """All value heads of the delta net side by side."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Channels of the delta net's convolution: q, k and v."""
        return 2 * self.key_heads * self.key_dim + self.value_width

    @property
    def delta_rows(self) -> tuple[int, ...]:
        """Rows of the delta net's projections: qkv, z, b, a."""
        return (self.channels, self.value_width, self.value_heads, self.value_heads)

    @property
    def q_width(self) -> int:
        """All query heads side by side."""
        return self.q_heads * self.head_dim

    @property
    def attention_rows(self) -> tuple[int, ...]:
        """Rows of the attention's projections: query and gate, k, v."""
        return (2 * self.q_width, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim)

    @property
    def rotary_dims(self) -> int:
        """Dimensions of a head that RoPE turns."""
        return self.head_dim // 4


REAL = ModelShape(
    "Qwen3.6-35B-A3B", hidden=2048, q_heads=16, kv_heads=2, head_dim=256, key_heads=16,
    value_heads=32, key_dim=128, value_dim=128, experts=256, slots=8, width=512, vocab=248_320,
)  # fmt: skip
TINY = ModelShape(
    "lily-tiny", hidden=384, q_heads=2, kv_heads=1, head_dim=256, key_heads=2, value_heads=4,
    key_dim=128, value_dim=128, experts=12, slots=4, width=128, vocab=6144,
)  # fmt: skip
