"""encoder: LayerNorm after the residual, attention within windows, GELU, pooling."""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference
from kernels.arena import Arena, floats
from kernels.compare import (
    ULP,
    assert_close,
    assert_same_bits,
    matrix_tolerance,
    rounding_nmse,
    sum_tolerance,
)
from kernels.refusals import assert_refused, tensors_of

EPS = 1e-12
HEAD_DIM = 32
WIDTHS = (1, 31, 33, 64, 100, 384, 517)
WINDOWS = ([1], [2, 1], [7], [33, 1, 32], [5, 64, 31], [130], [511, 3])


def normal(rng: np.random.Generator, *shape: int, mean: float = 0.0) -> np.ndarray:
    """float32 around a mean."""
    return (rng.standard_normal(shape) + mean).astype(np.float32)


def offsets_of(lengths: list[int]) -> np.ndarray:
    """Where each window begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32)


def assert_layer_norm(device, arena, y, hidden, rows, gain, shift):
    """The residual in float32, and its copy in the type of activations.

    Centring costs a rounding of the mean's size, which the factor then scales as it does the row.
    """
    want = reference.layer_norm(rows, gain, shift, EPS)
    centred = rows - rows.mean(-1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(-1, keepdims=True) + EPS)
    magnitude = (np.abs(centred) + np.abs(rows).max(-1, keepdims=True)) / deviation * np.abs(
        gain
    ) + np.abs(shift)
    exact = sum_tolerance(rows.shape[1])
    assert_close(floats(hidden), want, tolerance=exact, magnitude=magnitude)
    copied = matrix_tolerance(device, rows.shape[1])
    assert_close(floats(y), want, tolerance=copied, magnitude=magnitude, nmse=rounding_nmse(device))


@pytest.mark.parametrize("width", WIDTHS[1:])  # one column has no deviation
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_norm(device, rng, width, mean):
    """hidden = layer_norm(hidden + bias); a large mean costs only its own rounding."""
    x, bias = normal(rng, 5, width, mean=mean), normal(rng, width)
    gain, shift = normal(rng, width), normal(rng, width)
    arena = Arena(device)
    hidden, y = arena.inout(x), arena.activation_output(5, width)
    inputs = [arena.input(each) for each in (bias, gain, shift)]
    arena.run(native.encoder_norm, y, hidden, *inputs, EPS)
    rows = reference.f64(x) + bias
    assert_layer_norm(device, arena, y, hidden, rows, gain, shift)


def test_norm_of_a_constant_row(device):
    """Nothing is left but the shift; eps keeps it finite."""
    arena = Arena(device)
    hidden, y = arena.inout(np.full((2, 64), 3.0, np.float32)), arena.activation_output(2, 64)
    one, shift = np.ones(64, np.float32), np.full(64, 0.25, np.float32)
    inputs = [arena.input(each) for each in (np.zeros(64, np.float32), one, shift)]
    arena.run(native.encoder_norm, y, hidden, *inputs, EPS)
    np.testing.assert_array_equal(floats(y), 0.25)


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_embed(device, rng, width):
    """The word's row is there; those of place and form are added before the norm."""
    tokens = 7
    x, gain, shift = normal(rng, tokens, width), normal(rng, width), normal(rng, width)
    tables = normal(rng, 9, width), normal(rng, 24, width)
    places = rng.integers(0, 9, tokens, dtype=np.uint32)
    forms = rng.integers(0, 24, tokens, dtype=np.uint32)
    places[0], forms[-1] = 8, 23
    arena = Arena(device)
    hidden, y = arena.inout(x), arena.activation_output(tokens, width)
    inputs = [arena.input(each) for each in (places, forms, *tables, gain, shift)]
    arena.run(native.encoder_embed, y, hidden, *inputs, EPS)
    rows = reference.f64(x) + tables[0][places] + tables[1][forms]
    assert_layer_norm(device, arena, y, hidden, rows, gain, shift)


def attention(device, qkv, bias, lengths, heads):
    """Rows of all heads."""
    arena = Arena(device)
    y = arena.activation_output(len(qkv), heads * HEAD_DIM)
    inputs = [arena.input(each) for each in (qkv, bias, offsets_of(lengths))]
    arena.run(native.encoder_attention, y, *inputs, heads, max(lengths))
    return floats(y)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("lengths", WINDOWS, ids=str)
def test_attention(device, rng, lengths, heads):
    """Windows of every length beside each other; scores of a few units, so that weights differ."""
    columns = 3 * heads * HEAD_DIM
    qkv, bias = normal(rng, sum(lengths), columns), normal(rng, columns)
    want = reference.window_attention(qkv, bias, lengths, heads)
    # A score's error moves its weight by as much: 32 products of up to 4 * 4, scaled by 1 / 6.
    terms = max(lengths) + HEAD_DIM
    tolerance = matrix_tolerance(device, terms) + 3 * 16 * sum_tolerance(HEAD_DIM)
    got = attention(device, qkv, bias, lengths, heads)
    assert_close(got, want, tolerance=tolerance, nmse=rounding_nmse(device))


def test_attention_far_scores(device, rng):
    """Scores of hundreds neither overflow nor lose the row."""
    qkv, bias = 30 * normal(rng, 40, 96), np.zeros(96, np.float32)
    want = reference.window_attention(qkv, bias, [40], 1)
    # Scores reach 5000 or so, and an ulp of one moves a weight by as much.
    got = attention(device, qkv, bias, [40], 1)
    assert_close(got, want, tolerance=5000 * 8 * ULP + matrix_tolerance(device, 40), nmse=1e-4)


def test_windows_do_not_mix(device, rng):
    """A NaN in one window stays in it."""
    qkv, bias = normal(rng, 45, 96), normal(rng, 96)
    qkv[10] = np.nan
    got = attention(device, qkv, bias, [9, 3, 33], 1)
    assert np.isnan(got[9:12]).all()
    assert np.isfinite(np.delete(got, slice(9, 12), 0)).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_gelu(device, rng, width):
    """Both tails and zero; off by roundings of x's own size."""
    x, bias = 4 * normal(rng, 6, width), normal(rng, width)
    arena = Arena(device)
    y = arena.activation_output(6, width)
    arena.run(native.encoder_gelu, y, arena.input(x), arena.input(bias))
    wide = reference.f64(x) + bias
    # The fit is off by 2e-7 of the small side, and x + bias by a rounding of either.
    magnitude = np.abs(x) + np.abs(bias)
    tolerance = matrix_tolerance(device, 1)
    want = reference.gelu(wide)
    assert_close(
        floats(y), want, tolerance=tolerance, magnitude=magnitude, nmse=rounding_nmse(device)
    )


def test_gelu_keeps_the_small_side(host):
    """Far below zero, where 1 + erf would be nothing but its rounding."""
    x = -np.linspace(0, 8, 257, dtype=np.float32)[None]
    arena = Arena(host)
    y = arena.output(*x.shape)
    arena.run(native.encoder_gelu, y, arena.input(x), arena.input(np.zeros(257, np.float32)))
    # z * z is rounded once, and exp scales that by z * z itself: 32 at 8.
    relative = 2e-7 + 32 * 4 * ULP
    want = reference.gelu(x)
    assert_close(floats(y), want, tolerance=relative, magnitude=np.abs(want))


@pytest.mark.parametrize("width", WIDTHS)
def test_pool(device, rng, width):
    """Mean, then maximum, of each window."""
    lengths = [1, 7, 130]
    rows = normal(rng, sum(lengths), width)
    arena = Arena(device)
    y = arena.activation_output(3, 2 * width)
    arena.run(native.encoder_pool, y, arena.input(rows), arena.input(offsets_of(lengths)))
    parts = np.split(reference.f64(rows), np.cumsum(lengths)[:-1])
    want = np.stack([np.concatenate([part.mean(0), part.max(0)]) for part in parts])
    sizes = np.stack([np.tile(np.abs(part).max(0), 2) for part in parts])
    tolerance = matrix_tolerance(device, max(lengths))
    assert_close(floats(y), want, tolerance=tolerance, magnitude=sizes, nmse=rounding_nmse(device))


def test_thread_counts_agree(thread_counts, rng):
    """A head of a window does not depend on who computed it."""
    qkv, bias = normal(rng, 64, 288), normal(rng, 288)
    results = [{"y": attention(each, qkv, bias, [20, 44], 3)} for each in thread_counts]
    assert_same_bits(results)


def norm_arguments(arena: Arena) -> dict[str, object]:
    """Valid ones."""
    row = {name: arena.output(64) for name in ("bias", "gain", "shift")}
    return {"y": arena.output(3, 64), "hidden": arena.output(3, 64), **row, "eps": EPS}


def test_refusals(host):
    """Each wrong tensor is named."""
    arena = Arena(host)
    norm = norm_arguments(arena)
    assert_refused(native.encoder_norm, norm, tensors_of(norm))
    assert_refused(native.encoder_norm, norm | {"eps": -1.0}, "eps is -1")
    embed = {key: norm[key] for key in ("y", "hidden", "gain", "shift", "eps")}
    places = arena.input(np.zeros(3, np.uint32))
    embed |= {"positions": places, "forms": places}
    embed |= {"position_table": arena.output(9, 64), "form_table": arena.output(24, 64)}
    assert_refused(native.encoder_embed, embed, tensors_of(embed))
    gelu = {"y": arena.output(3, 64), "x": arena.output(3, 64), "bias": arena.output(64)}
    assert_refused(native.encoder_gelu, gelu, tensors_of(gelu))
    windows = arena.input(np.array([0, 1, 3], np.uint32))
    pool = {"y": arena.output(2, 128), "hidden": arena.output(3, 64), "offsets": windows}
    assert_refused(native.encoder_pool, pool, tensors_of(pool))
    heads = {"y": arena.output(3, 64), "qkv": arena.output(3, 192), "bias": arena.output(192)}
    heads |= {"offsets": windows, "heads": 2, "longest": 2}
    assert_refused(native.encoder_attention, heads, tensors_of(heads))
    assert_refused(native.encoder_attention, heads | {"heads": 3}, "qkv has shape")
    longest = heads | {"longest": 513}
    assert_refused(native.encoder_attention, longest, "longest window is 513, expected at most 512")
