"""Prefill on matrix units whose lanes kernels know (lane_tile.h): what NVIDIA's tiles choose.

Other GPU devices run the same kernels with a body in plain MSL.
"""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference, test_attention, test_delta
from kernels.arena import Arena, as_activation, floats
from kernels.compare import assert_close
from kernels.conftest import DEVICES, open_device
from kernels.layers import make_delta
from kernels.test_linear import assert_product, expected, judge, rows_of, run, run_add
from kernels.test_moe_prefill import assert_products
from kernels.weights import make_weight

pytestmark = pytest.mark.usefixtures("nvidia_tiles")


@pytest.fixture(params=[spec for spec in DEVICES if spec[0] != "cpu"], ids=lambda spec: spec[0])
def device(request: pytest.FixtureRequest) -> native.Device:
    """GPU devices: tiles are nothing to a CPU."""
    return open_device(*request.param)


# Rows short of a tile, in their last 16 and a tile and a bit; one tile of columns and a rest.
@pytest.mark.parametrize(
    ("storage", "group", "tokens", "rows", "cols"),
    [
        ("q4", 64, 9, 130, 256),
        ("q4", 32, 33, 62, 384),
        ("q4", 128, 64, 8, 512),
        ("q4", 64, 131, 134, 256),
        ("q8", 64, 20, 6, 256),
        ("q8", 32, 70, 132, 128),
    ],
)
def test_products(device, rng, storage, group, tokens, rows, cols):
    """By the tiles that NVIDIA takes."""
    check_products(device, rng, storage, group, tokens, rows, cols)


def check_products(device, rng, storage, group, tokens, rows, cols):
    """Side by side, and added to the residual stream."""
    weights = [make_weight(rng, storage, group, (n, cols), scale=0.5) for n in (rows, 2, 3)]
    x = rows_of(rng, tokens, cols)
    assert_product(device, run(device, x, weights), x, weights)
    residual = (rng.standard_normal((tokens, rows)) * 3).astype(np.float32)
    seen, limits = judge(device, x)
    want, magnitude = expected(seen, weights[:1])
    got = run_add(device, x, weights[0], residual)
    assert_close(got, want + residual, magnitude=magnitude + np.abs(residual), **limits)


def test_odd_rows_take_another_tile(device, rng):
    """Rows of weights go in pairs, of one segment."""
    weights = [make_weight(rng, "q4", 64, (n, 128), scale=0.5) for n in (7, 1)]
    x = rows_of(rng, 40, 128)
    assert_product(device, run(device, x, weights), x, weights)


@pytest.mark.parametrize(
    ("storage", "group", "tokens"),
    [("q4", 64, 40), ("q8", 32, 40), ("q4", 32, 130), ("q4", 64, 310)],
)
def test_grouped_products(device, rng, storage, group, tokens):
    """Experts with no rows, few, and more than a tile; outputs that fill no tile."""
    assert check_grouped(device, rng, storage, group, tokens).count("_lanes") == 2


def check_grouped(device, rng, storage, group, tokens):
    """Of five experts, one has no rows. Returns what was launched."""
    experts, slots, hidden, width = 5, 2, 256, 256
    gate, up = (
        make_weight(rng, storage, group, (experts, width, hidden), hidden**-0.5) for _ in "gu"
    )
    down = make_weight(rng, storage, group, (experts, 133, width), width**-0.5)
    ids = rng.choice([0, 1, 4, 4], (tokens, slots)).astype(np.uint32)
    ids[0] = 2
    order = np.argsort(ids.ravel(), kind="stable").astype(np.uint32)
    offsets = np.searchsorted(ids.ravel()[order], np.arange(experts + 1)).astype(np.uint32)
    x = rng.standard_normal((tokens, hidden)).astype(np.float32)
    arena = Arena(device)
    act = arena.activation_output(tokens * slots, width)
    y = arena.output(tokens * slots, 133)
    sorting = arena.input(order), arena.input(offsets)
    step = arena.step()
    native.moe_grouped_gate_up(
        step, act, arena.activation(x), *sorting, arena.matrix(gate), arena.matrix(up), slots
    )
    native.moe_grouped_down(step, y, act, *sorting, arena.matrix(down))
    arena.run_step(step)
    rows, of = reference.f64(as_activation(device, x))[order // slots], ids.ravel()[order]
    want_act, want_y = np.empty((tokens * slots, width)), np.empty((tokens * slots, 133))
    for at, (row, e) in enumerate(zip(rows, of, strict=True)):
        want_act[at] = reference.swiglu(row, gate.values[e], up.values[e])
        want_y[order[at]] = down.values[e] @ want_act[at]
    assert_products(device, floats(act), want_act)
    assert_products(device, y.numpy(), want_y)
    return step.describe()


@pytest.mark.parametrize(("tokens", "position"), [(1, 0), (33, 5), (40, 67)])
@pytest.mark.parametrize("shape", [(8, 1, 256, 64), (4, 2, 128, 32), (3, 1, 64, 24)])
def test_causal_attention(device, rng, shape, tokens, position):
    """Blocks that all rows see, that some do, and the last in part."""
    layer = test_attention.filled(rng, shape, "bf16", position, tokens)
    test_attention.assert_prefill(device, rng, layer, tokens, position)


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 70])
@pytest.mark.parametrize("shape", [(1, 3, 128, 128), (2, 2, 128, 16)])
def test_delta_rule(device, rng, shape, tokens):
    """Blocks of tokens in whole and in part, and simdgroups without values."""
    layer = make_delta(rng, *shape)
    proj = layer.rows(rng, tokens)
    got = test_delta.run_chunk(device, layer, proj, 4)
    test_delta.assert_layer(device, got, test_delta.expected(layer, proj, 4))


def test_delta_with_extreme_gates(device, rng):
    """Decays that underflow within a block, and keys that are all alike."""
    layer = make_delta(rng, 1, 2, 128, 32)
    proj = layer.rows(rng, 40)
    proj[:, : layer.channels] = proj[:1, : layer.channels]
    proj[::3, -2:] = 60.0
    proj[::5, -4:-2] = 30.0
    got = test_delta.run_chunk(device, layer, proj, 4)
    test_delta.assert_layer(device, got, test_delta.expected(layer, proj, 4))
