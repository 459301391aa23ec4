"""Logits against transformers in float32, on random checkpoints of several shapes and layouts.

Both sides read the same files, so names and layouts are compared, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.checkpoints import (
    SPECS,
    Spec,
    Tensors,
    hub_config,
    hub_tensors,
    random_tensors,
    rounded,
    text_config,
    write_checkpoint,
)
from lily import _native
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOLERANCE = 1e-4  # at logits of standard deviation 1; two float32 engines differ by 2e-5
TOKENS = 150
PROMPT = 100


def oracle(folder: Path, ids: list[int]) -> NDArray[np.float32]:
    """Logits of all places, [tokens, vocab], in float32."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        output_loading_info=True,
        attn_implementation="eager",
        experts_implementation="eager",
    )
    assert not info["missing_keys"]
    with torch.no_grad():
        logits = model.eval()(torch.tensor([ids]), use_cache=False).logits[0]
    return logits.float().numpy()


def check(folder: Path, spec: Spec, **options: Any) -> None:
    """Prefill in chunks and cached decode against the oracle."""
    ids = np.random.default_rng(1).integers(0, spec.vocab, TOKENS).tolist()
    expected = oracle(folder, ids)
    scale = max(1.0, float(expected.std()))
    engine = _native.Engine(str(folder), device="cpu", **options)
    session = engine.session()

    everywhere = session.all_logits(ids)
    assert np.isfinite(everywhere).all()
    assert np.abs(everywhere - expected).max() <= TOLERANCE * scale

    assert session.prefill(ids[:PROMPT]) in (0, PROMPT)
    rows = [session.logits()]
    for token in ids[PROMPT:]:
        session.step(token)
        rows.append(session.logits())
    decoded = np.stack(rows)
    assert np.isfinite(decoded).all()
    assert np.abs(decoded - expected[PROMPT - 1 :]).max() <= TOLERANCE * scale


def written(folder: Path, spec: Spec, layout: str, tensors: Tensors) -> Path:
    if layout == "text":
        return write_checkpoint(folder, text_config(spec), tensors)
    extras = layout == "hub_with_extras"
    return write_checkpoint(
        folder, hub_config(spec), hub_tensors(spec, tensors, with_extras=extras), shards=3
    )


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_shapes(tmp_path: Path, name: str, dtype: str) -> None:
    spec = SPECS[name]
    tensors = random_tensors(spec, seed=5)
    folder = written(tmp_path, spec, "text", rounded(tensors) if dtype == "bf16" else tensors)
    check(folder, spec, chunk_tokens=37)


@pytest.mark.parametrize("layout", ["hub", "hub_with_extras"])
def test_layouts(tmp_path: Path, layout: str) -> None:
    spec = SPECS["five_experts"]
    check(written(tmp_path, spec, layout, random_tensors(spec, seed=6)), spec)
