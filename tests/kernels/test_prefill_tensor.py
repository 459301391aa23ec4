"""Prefill by tensor ops (metal/tensor_ops), over an emulation of them; what no Mac has shown.

The emulation (metal/clang/MetalPerformancePrimitives) scatters elements over lanes as no hardware
does, and keeps Apple's meaning of coordinates and transposition as its headers tell it.
"""

from __future__ import annotations

import pytest
from lily._native import kernels as native

from kernels import test_attention
from kernels.arena import Arena
from kernels.conftest import DEVICES, open_device
from kernels.test_prefill_lanes import check_grouped, check_products


@pytest.fixture(autouse=True)
def _tensor_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arena, "tiles", "apple_tensor")


@pytest.fixture(params=[spec for spec in DEVICES if spec[0] == "fibers"], ids=lambda spec: spec[0])
def device(request: pytest.FixtureRequest) -> native.Device:
    """The one that has these kernels wherever it is."""
    return open_device(*request.param)


# Rows short of one tile, of two, and of three; columns that end in a rest; groups of all sizes.
@pytest.mark.parametrize(
    ("storage", "group", "tokens", "rows", "cols"),
    [
        ("q4", 32, 19, 70, 64),
        ("bf16", 0, 33, 70, 72),
        ("q8", 32, 64, 6, 256),
        ("q4", 64, 131, 134, 256),
        ("q4", 128, 70, 62, 128),
    ],
)
def test_products(device, rng, storage, group, tokens, rows, cols):
    """By the tiles that tensor ops take."""
    check_products(device, rng, storage, group, tokens, rows, cols)


@pytest.mark.parametrize(
    ("storage", "group", "tokens"),
    [("q4", 64, 40), ("bf16", 0, 150), ("q8", 32, 150), ("q4", 64, 150)],
)
def test_grouped_products(device, rng, storage, group, tokens):
    """Experts with no rows, few, and more than a tile; outputs that fill no tile."""
    check_grouped(device, rng, storage, group, tokens)


@pytest.mark.parametrize(("tokens", "position"), [(1, 0), (33, 5), (40, 67)])
@pytest.mark.parametrize("shape", [(8, 1, 256, 64), (6, 2, 256, 64)])
def test_causal_attention(device, rng, shape, tokens, position):
    """Blocks that all rows see, that some do, and the last in part."""
    layer = test_attention.filled(rng, shape, "bf16", position, tokens)
    test_attention.assert_prefill(device, rng, layer, tokens, position)
