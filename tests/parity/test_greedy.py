"""The same greedy tokens as the oracles, from a hub-layout folder and from an MLX 4-bit folder.

The shipped model is trained, so its tokens are text; the random one has every tensor of the hub.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from engine.checkpoints import TINY, hub_config, hub_tensors, random_tensors, write_checkpoint
from lily.hub import shipped_model
from lily.tokenizer import Tokenizer

from bench.quality.oracles import Lily, MlxLm, Transformers

pytest.importorskip("torch")
pytest.importorskip("transformers")

TOKENS = 40
PROMPTS = (
    "<|im_start|>user\nTell me a story about a fox.<|im_end|>\n<|im_start|>assistant\n<think>\n",
    "<|im_start|>user\nWhat is 17 + 25?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "It was a dark and stormy night",
)


def test_hub_layout(tmp_path: Path) -> None:
    tensors = hub_tensors(TINY, random_tensors(TINY, seed=8), with_extras=True)
    folder = write_checkpoint(tmp_path / "hub", hub_config(TINY), tensors, shards=2)
    prompt = np.random.default_rng(9).integers(0, TINY.vocab, 33).astype(np.uint32)
    assert Lily(folder).greedy(prompt, TOKENS) == Transformers(folder).greedy(prompt, TOKENS)


@pytest.mark.parametrize("oracle", [Transformers, MlxLm])
def test_shipped_4_bit(oracle: type) -> None:
    if oracle is MlxLm:
        pytest.importorskip("mlx.core")
    folder = shipped_model()
    tokenizer = Tokenizer(folder)
    lily, other = Lily(folder), oracle(folder)
    for text in PROMPTS:
        prompt = np.array(tokenizer.encode(text, special=True), np.uint32)
        assert lily.greedy(prompt, TOKENS) == other.greedy(prompt, TOKENS), text
