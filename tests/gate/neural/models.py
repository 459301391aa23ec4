"""Random models of the gate's kind, as folders, and their network in NumPy float64.

This file owns the layout of such a folder once more, written from the format and not from the
loader. It holds no expectation.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from kernels import reference
from kernels.weights import from_bf16, to_bf16
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

_WORDS = (
    "[PAD] [UNK] [CLS] [SEP] my name is ada love ##lace and i live in london the of to a mark will "
    "spenser call may date went home dr . , ' ; - 1 2 3 ##1 ##2 ##3 o s ##s"
)
WORDS = _WORDS.split()
LABELS = ["person", "location", "phone", "health"]
TOPICS = ["health", "legal", "finance"]
SUBJECTS = ["personal", "general", "fiction"]
GROUP = 32
WORD_GROUP = 32  # of the table of words, in 4 bits
EPS = 1e-12


@dataclass
class Model:
    """A network of any size. `arrays`: what the file holds, quantised matrices decoded."""

    layers: int = 2
    heads: int = 2
    intermediate: int = 96
    window_tokens: int = 16
    overlap_tokens: int = 4
    forms: int = 24
    seed: int = 0
    words: list[str] = field(default_factory=lambda: list(WORDS))
    labels: list[str] = field(default_factory=lambda: list(LABELS))
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    tensors: dict[str, tuple[str, np.ndarray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        hidden = self.hidden
        self._affine("embeddings.word", len(self.words), hidden, 4, WORD_GROUP)
        self._f32("embeddings.position.weight", self.window_tokens, hidden)
        self._f32("embeddings.form.weight", self.forms, hidden)
        self._norm("embeddings.norm")
        for index in range(self.layers):
            layer = f"layers.{index}."
            for name in ("query", "key", "value", "output"):
                self._linear(f"{layer}attention.{name}", hidden, hidden)
            self._norm(f"{layer}attention.norm")
            self._linear(f"{layer}mlp.up", self.intermediate, hidden)
            self._linear(f"{layer}mlp.down", hidden, self.intermediate)
            self._norm(f"{layer}mlp.norm")
        for name, rows, cols in (
            ("token", 1 + 4 * len(self.labels), hidden),
            ("document.dense", hidden, 2 * hidden),
            ("document.output", len(TOPICS) + len(SUBJECTS), hidden),
        ):
            self._f32(f"{name}.weight", rows, cols, scale=cols**-0.5)
            self._f32(f"{name}.bias", rows)

    @property
    def hidden(self) -> int:
        """Columns of a row."""
        return 32 * self.heads

    def _f32(self, name: str, *shape: int, scale: float = 1.0, mean: float = 0.0) -> None:
        values = (self._rng.standard_normal(shape) * scale + mean).astype(np.float32)
        self.arrays[name] = values
        self.tensors[name] = ("F32", values)

    def _norm(self, name: str) -> None:
        self._f32(f"{name}.weight", self.hidden, scale=0.1, mean=1.0)
        self._f32(f"{name}.bias", self.hidden, scale=0.1)

    def _linear(self, name: str, rows: int, cols: int) -> None:
        self._affine(name, rows, cols, 8, GROUP)
        self._f32(f"{name}.bias", rows, scale=0.5)

    def _affine(self, name: str, rows: int, cols: int, bits: int, group: int) -> None:
        levels = 1 << bits
        codes = self._rng.integers(0, levels, (rows, cols), dtype=np.uint8)
        size = (rows, cols // group)
        step = np.float32(cols**-0.5 / (0.29 * levels))  # codes drawn evenly deviate by 0.29 levels
        scales = to_bf16((self._rng.random(size) + 0.5).astype(np.float32) * step)
        biases = to_bf16((-(levels - 1) / 2 * from_bf16(scales)).astype(np.float32))
        packed = codes if bits == 8 else codes[:, ::2] | codes[:, 1::2] << 4
        self.tensors[f"{name}.weight"] = ("U32", np.ascontiguousarray(packed).view(np.uint32))
        self.tensors[f"{name}.scales"] = ("BF16", scales)
        self.tensors[f"{name}.biases"] = ("BF16", biases)
        decoded = codes.reshape(*size, group) * from_bf16(scales)[..., None].astype(np.float64)
        decoded = decoded + from_bf16(biases)[..., None]
        self.arrays[f"{name}.weight"] = decoded.reshape(rows, cols)

    def config(self) -> dict[str, Any]:
        """config.json without the digest."""
        return {
            "model_type": "lily_gate",
            "layers": self.layers,
            "hidden": self.hidden,
            "heads": self.heads,
            "intermediate": self.intermediate,
            "vocab": len(self.words),
            "layer_norm_eps": EPS,
            "window_tokens": self.window_tokens,
            "overlap_tokens": self.overlap_tokens,
            "forms": self.forms,
            "cls_id": self.words.index("[CLS]"),
            "sep_id": self.words.index("[SEP]"),
            "unk_id": self.words.index("[UNK]"),
            "quantisation": {"bits": 8, "group_size": GROUP},
            "labels": self.labels,
            "topics": TOPICS,
            "subjects": SUBJECTS,
            "decode": {
                "outside_offset": 0.0,
                "label_offsets": dict.fromkeys(self.labels, 0.0),
                "thresholds": dict.fromkeys(self.labels, 0.0),
            },
            "document": {
                "topic_temperature": 1.0,
                "subject_temperature": 1.0,
                "thresholds": dict.fromkeys(TOPICS, 0.5),
            },
        }

    def write(self, folder: Path, **changed: Any) -> Path:
        """The whole folder; `changed` are members of config.json."""
        folder.mkdir(parents=True, exist_ok=True)
        data = self.file()
        (folder / "model.safetensors").write_bytes(data)
        config = self.config() | {"weights_sha256": hashlib.sha256(data).hexdigest()} | changed
        (folder / "config.json").write_text(json.dumps(config))
        tokenizer(self.words).save(str(folder / "tokenizer.json"))
        return folder

    def file(self) -> bytes:
        """model.safetensors."""
        header, parts, offset = {}, [], 0
        for name, (dtype, array) in self.tensors.items():
            end = offset + array.nbytes
            header[name] = {
                "dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, end]
            }  # fmt: skip
            parts.append(array.tobytes())
            offset = end
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + b"".join(parts)

    def windows(self, rng: np.random.Generator, lengths: list[int]) -> tuple[np.ndarray, ...]:
        """Random ids and forms, and the lengths."""
        total = sum(lengths)
        ids = rng.integers(0, len(self.words), total, dtype=np.uint32)
        return ids, rng.integers(0, self.forms, total, dtype=np.uint32), np.array(lengths, "u4")

    def run(
        self, ids: np.ndarray, forms: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """(token logits, document logits) in float64."""
        w = self.arrays
        places = np.concatenate([np.arange(length) for length in lengths])
        x = w["embeddings.word.weight"][ids] + w["embeddings.position.weight"][places]
        x = self._layer_norm(x + w["embeddings.form.weight"][forms], "embeddings.norm")
        for index in range(self.layers):
            x = self._layer(x, f"layers.{index}.", lengths)
        parts = np.split(x, np.cumsum(lengths)[:-1])
        pooled = np.stack([np.concatenate([part.mean(0), part.max(0)]) for part in parts])
        dense = reference.gelu(self._product(pooled, "document.dense"))
        return self._product(x, "token"), self._product(dense, "document.output")

    def _layer(self, x: np.ndarray, name: str, lengths: np.ndarray) -> np.ndarray:
        attention, mlp = f"{name}attention.", f"{name}mlp."
        qkv = [self._product(x, f"{attention}{part}") for part in ("query", "key", "value")]
        mixed = reference.window_attention(np.concatenate(qkv, 1), 0.0, lengths, self.heads)
        x = self._layer_norm(x + self._product(mixed, f"{attention}output"), f"{attention}norm")
        up = reference.gelu(self._product(x, f"{mlp}up"))
        return self._layer_norm(x + self._product(up, f"{mlp}down"), f"{mlp}norm")

    def _product(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.arrays[f"{name}.weight"].T + self.arrays[f"{name}.bias"]

    def _layer_norm(self, x: np.ndarray, name: str) -> np.ndarray:
        gain, shift = self.arrays[f"{name}.weight"], self.arrays[f"{name}.bias"]
        return reference.layer_norm(x, gain, shift, EPS)


def tokenizer(words: list[str]) -> Tokenizer:
    """An uncased WordPiece tokenizer over these words."""
    vocab = {word: index for index, word in enumerate(words)}
    made = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made
