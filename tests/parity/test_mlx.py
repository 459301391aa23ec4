"""Logits against mlx-lm with float32 activations, on mlx-lm's own quantised conversions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.checkpoints import (
    QUANTISABLE,
    hub_config,
    hub_tensors,
    random_tensors,
    rounded,
    write_checkpoint,
)
from lily import _native
from numpy.typing import NDArray

mx = pytest.importorskip("mlx.core")
mlx = pytest.importorskip("mlx_lm.utils")

TOLERANCE = 2e-4  # at logits of standard deviation 1
TOKENS = 40
PROMPT = 29

Predicate = Callable[[str, Any], bool | dict[str, int]]


def routers_at(bits: int, group: int) -> Predicate:
    """mlx-lm's own rule, with another format for the routers."""
    return lambda path, _: (
        {"group_size": group, "bits": bits}
        if path.endswith(("mlp.gate", "shared_expert_gate"))
        else True
    )


def mixed(path: str, _: Any) -> bool | dict[str, int]:
    """Neighbours that one kernel reads, stored differently."""
    if path.endswith(("shared_expert_gate", "switch_mlp.up_proj", "in_proj_z", "v_proj")):
        return {"group_size": 32, "bits": 8}
    return not path.endswith(("in_proj_b", "shared_expert.gate_proj", "lm_head"))


CASES: dict[str, tuple[int, int, Predicate | None]] = {
    "4 bit, groups of 64": (4, 64, None),
    "4 bit, groups of 32": (4, 32, routers_at(8, 32)),
    "4 bit, groups of 128": (4, 128, routers_at(8, 128)),
    "8 bit, groups of 64": (8, 64, routers_at(4, 64)),
    "mixed": (4, 64, mixed),
}


def convert(folder: Path, bits: int, group: int, predicate: Predicate | None) -> Path:
    """Quantises a bf16 checkpoint in hub layout with mlx-lm."""
    tensors = rounded(random_tensors(QUANTISABLE, seed=8))
    source = write_checkpoint(
        folder / "hf", hub_config(QUANTISABLE), hub_tensors(QUANTISABLE, tensors)
    )
    model, config = mlx.load_model(source)
    model, config = mlx.quantize_model(model, config, group, bits, quant_predicate=predicate)
    target = folder / "mlx"
    mlx.save_model(target, model)
    mlx.save_config(config, target / "config.json")
    return target


def oracle(folder: Path, ids: list[int]) -> NDArray[np.float32]:
    model, _ = mlx.load_model(folder)
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([ids]))[0])


@pytest.mark.parametrize("name", CASES)
def test_logits(tmp_path: Path, name: str) -> None:
    mx.set_default_device(mx.cpu)
    folder = convert(tmp_path, *CASES[name])
    ids = np.random.default_rng(2).integers(0, QUANTISABLE.vocab, TOKENS).tolist()
    expected = oracle(folder, ids)
    engine = _native.Engine(str(folder), device="cpu", chunk_tokens=16)
    session = engine.session()
    scale = max(1.0, float(expected.std()))
    everywhere = session.all_logits(ids)
    assert np.isfinite(everywhere).all()
    assert np.abs(everywhere - expected).max() <= TOLERANCE * scale

    session.prefill(ids[:PROMPT])
    for place in range(PROMPT, TOKENS):
        session.step(ids[place])
        row = session.logits()
        assert np.isfinite(row).all()
        assert np.abs(row - expected[place]).max() <= TOLERANCE * scale
