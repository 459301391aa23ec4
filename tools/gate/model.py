"""The network of the gate's model in plain PyTorch, with the names of FORMAT.md.

This file owns the arithmetic that training and evaluation share. It knows no text and no labels
beyond their number.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

HIDDEN, HEADS, LAYERS, INTERMEDIATE, VOCAB = 384, 12, 6, 1536, 30522
WINDOW, OVERLAP, FORMS, EPS = 128, 40, 24, 1e-12
CLS, SEP, UNK = 101, 102, 100


class Attention(nn.Module):
    """Bidirectional attention with its residual norm; `mask` [batch, tokens] is True where a
    token is."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (
            nn.Linear(HIDDEN, HIDDEN) for _ in range(4)
        )
        self.norm = nn.LayerNorm(HIDDEN, EPS)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, dropout: float) -> torch.Tensor:
        batch, tokens, _ = x.shape

        def heads(y: torch.Tensor) -> torch.Tensor:
            return y.view(batch, tokens, HEADS, HIDDEN // HEADS).transpose(1, 2)

        context = functional.scaled_dot_product_attention(
            heads(self.query(x)),
            heads(self.key(x)),
            heads(self.value(x)),
            attn_mask=mask[:, None, None, :],
        )
        out = self.output(context.transpose(1, 2).reshape(batch, tokens, HIDDEN))
        return self.norm(x + functional.dropout(out, dropout, self.training))


class Mlp(nn.Module):
    """The two-layer perceptron with its residual norm."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(HIDDEN, INTERMEDIATE), nn.Linear(INTERMEDIATE, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, EPS)

    def forward(self, x: torch.Tensor, dropout: float) -> torch.Tensor:
        return self.norm(
            x + functional.dropout(self.down(functional.gelu(self.up(x))), dropout, self.training)
        )


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(), Mlp()


class Embeddings(nn.Module):
    """Word, position and form tables, summed and normed."""

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(VOCAB, HIDDEN)
        self.position = nn.Embedding(WINDOW, HIDDEN)
        self.form = nn.Embedding(FORMS, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN, EPS)

    def forward(self, ids: torch.Tensor, forms: torch.Tensor) -> torch.Tensor:
        return self.norm(self.word(ids) + self.position.weight[: ids.shape[1]] + self.form(forms))


class Document(nn.Module):
    """Topics and subject from the pooled states of a window."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.dense, self.output = nn.Linear(2 * HIDDEN, HIDDEN), nn.Linear(HIDDEN, outputs)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, dropout: float) -> torch.Tensor:
        x = x.float()
        there = mask[..., None]
        mean = (x * there).sum(1) / there.sum(1)
        peak = x.masked_fill(~there, -math.inf).amax(1)
        pooled = functional.dropout(torch.cat([mean, peak], -1), dropout, self.training)
        return self.output(
            functional.dropout(functional.gelu(self.dense(pooled)), dropout, self.training)
        )


class GateModel(nn.Module):
    """(ids, forms, mask), each [batch, tokens] -> token logits [batch, tokens, tags], document
    logits."""

    def __init__(self, tags: int, topics: int, subjects: int = 3) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.token = nn.Linear(HIDDEN, tags)
        self.document = Document(topics + subjects)
        self.dropout = 0.1
        nn.init.zeros_(self.embeddings.form.weight)

    def forward(
        self, ids: torch.Tensor, forms: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = functional.dropout(self.embeddings(ids, forms), self.dropout, self.training)
        for layer in self.layers:
            x = layer.mlp(layer.attention(x, mask, self.dropout), self.dropout)
        return self.token(x), self.document(x, mask, self.dropout)


def from_bert(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The encoder of a BERT checkpoint under this file's names (heads and forms are left out)."""
    own: dict[str, torch.Tensor] = {
        "embeddings.word.weight": state["embeddings.word_embeddings.weight"],
        "embeddings.position.weight": state["embeddings.position_embeddings.weight"][:WINDOW]
        + state["embeddings.token_type_embeddings.weight"][0],
    }
    names = {
        "attention.query": "attention.self.query",
        "attention.key": "attention.self.key",
        "attention.value": "attention.self.value",
        "attention.output": "attention.output.dense",
        "attention.norm": "attention.output.LayerNorm",
        "mlp.up": "intermediate.dense",
        "mlp.down": "output.dense",
        "mlp.norm": "output.LayerNorm",
    }
    for part in ("weight", "bias"):
        own[f"embeddings.norm.{part}"] = state[f"embeddings.LayerNorm.{part}"]
        for i in range(LAYERS):
            for mine, theirs in names.items():
                own[f"layers.{i}.{mine}.{part}"] = state[f"encoder.layer.{i}.{theirs}.{part}"]
    return own
