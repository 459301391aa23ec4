"""linear: GEMV and GEMM with stored weights, added to a residual, and with the norm folded in."""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference
from kernels.arena import Arena, as_activation
from kernels.compare import (
    assert_close,
    assert_same_bits,
    matrix_tolerance,
    rounding_nmse,
    sum_tolerance,
)
from kernels.refusals import assert_refused, tensors_of
from kernels.weights import STORAGES, Weight, make_weight

EPS = 1e-6
TOKENS = [1, 2, 3, 7, 33, 130]


def widths(group: int) -> tuple[int, ...]:
    """Columns around SIMD widths; whole groups where quantised."""
    return (group, 3 * group, 5 * group) if group else (1, 31, 33, 100, 259)


def rows_of(rng: np.random.Generator, tokens: int, cols: int) -> np.ndarray:
    """Activations with a mean that is not zero, so that biases of groups count."""
    return (rng.standard_normal((tokens, cols)) + 0.3).astype(np.float32)


def expected(x: np.ndarray, weights: list[Weight]) -> tuple[np.ndarray, np.ndarray]:
    """Products side by side, and the magnitudes that their rounding errors are relative to."""
    wide = reference.f64(x)
    values = np.concatenate([weight.values for weight in weights])
    sizes = np.concatenate([weight.magnitude for weight in weights])
    return wide @ values.T, np.abs(wide) @ sizes.T


def rows_on(arena: Arena, x: np.ndarray) -> native.Tensor:
    """Rows as a layer has them: one at decode in f32, many in the device's type of activations."""
    return arena.input(x) if len(x) == 1 else arena.activation(x)


def run(device: native.Device, x: np.ndarray, weights: list[Weight]) -> np.ndarray:
    """y = x W^T for matrices side by side."""
    arena = Arena(device)
    y = arena.output(len(x), sum(len(weight.values) for weight in weights))
    arena.run(native.linear, y, rows_on(arena, x), [arena.matrix(weight) for weight in weights])
    return y.numpy()


def run_add(
    device: native.Device, x: np.ndarray, weight: Weight, residual: np.ndarray
) -> np.ndarray:
    """residual + x W^T."""
    arena = Arena(device)
    y = arena.inout(residual)
    arena.run(native.linear_add, y, rows_on(arena, x), arena.matrix(weight))
    return y.numpy()


def run_norm(
    device: native.Device, x: np.ndarray, gain: np.ndarray, weights: list[Weight]
) -> np.ndarray:
    """rms_norm(x) W^T."""
    arena = Arena(device)
    y = arena.output(1, sum(len(weight.values) for weight in weights))
    segments = [arena.matrix(weight) for weight in weights]
    arena.run(native.linear_norm, y, arena.input(x), arena.input(gain), EPS, segments)
    return y.numpy()


def judge(device, x, extra_terms=0):
    """x as the device sees it, and how far its products may be off."""
    terms = x.shape[1] + extra_terms
    if len(x) == 1:
        return x, {"tolerance": sum_tolerance(terms)}
    tolerance = matrix_tolerance(device, terms)
    return as_activation(device, x), {"tolerance": tolerance, "nmse": rounding_nmse(device)}


def assert_product(device, got, x, weights, extra_terms=0):
    """Each element against the magnitudes of its own terms."""
    seen, limits = judge(device, x, extra_terms)
    want, magnitude = expected(seen, weights)
    assert_close(got, want, magnitude=magnitude, **limits)


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize(("storage", "group"), STORAGES)
def test_products(device, rng, storage, group, tokens):
    """One matrix, odd numbers of rows, every storage."""
    for rows, cols in zip((1, 5, 67, 33, 131), widths(group), strict=False):
        weight = make_weight(rng, storage, group, (rows, cols), scale=0.5)
        x = rows_of(rng, tokens, cols)
        assert_product(device, run(device, x, [weight]), x, [weight])


@pytest.mark.parametrize("tokens", [1, 3, 33])
@pytest.mark.parametrize(("storage", "group"), STORAGES)
def test_segments_of_one_storage(device, rng, storage, group, tokens):
    """Four matrices in one dispatch; a fifth needs another."""
    cols = 2 * group or 100
    for count, dispatches in ((2, 1), (4, 1), (5, 2)):
        rows = (33, 1, 7, 2, 19)[:count]
        weights = [make_weight(rng, storage, group, (n, cols), scale=0.5) for n in rows]
        x = rows_of(rng, tokens, cols)
        assert_product(device, run(device, x, weights), x, weights)
        assert _dispatches(device, x, weights) == dispatches


@pytest.mark.parametrize("tokens", [1, 7, 33])
def test_segments_of_mixed_storage(device, rng, tokens):
    """Runs of equal storage share a dispatch, and each writes its own columns of y."""
    kinds = [("q4", 64), ("q4", 64), ("q4", 32), ("q8", 64), ("bf16", 0), ("f32", 0), ("f32", 0)]
    rows = (37, 5, 11, 1, 18, 3, 41)
    weights = [
        make_weight(rng, storage, group, (n, 192), scale=0.5)
        for (storage, group), n in zip(kinds, rows, strict=True)
    ]
    x = rows_of(rng, tokens, 192)
    assert_product(device, run(device, x, weights), x, weights)
    assert _dispatches(device, x, weights) == 5


@pytest.mark.parametrize("tokens", [1, 2, 7, 33])
@pytest.mark.parametrize(("storage", "group"), STORAGES)
def test_add(device, rng, storage, group, tokens):
    """Into the residual stream."""
    cols = 3 * group or 259
    weight = make_weight(rng, storage, group, (35, cols), scale=0.5)
    x = rows_of(rng, tokens, cols)
    residual = (rng.standard_normal((tokens, 35)) * 3).astype(np.float32)
    seen, limits = judge(device, x)
    want, magnitude = expected(seen, [weight])
    assert_close(
        run_add(device, x, weight, residual),
        want + residual,
        magnitude=magnitude + np.abs(residual),
        **limits,
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("storage", "group"), STORAGES)
def test_norm_folded(device, rng, storage, group, scale):
    """The same as norm_rms and then linear, whatever the size of the row."""
    cols = 5 * group or 100
    weights = [make_weight(rng, storage, group, (n, cols), scale=0.5) for n in (35, 1, 6)]
    x = rows_of(rng, 1, cols) * np.float32(scale)
    gain = rng.standard_normal(cols).astype(np.float32)
    normed = reference.rms_norm(x, gain, EPS)
    # The norm is a sum of `cols` terms as well.
    assert_product(device, run_norm(device, x, gain, weights), normed, weights, extra_terms=cols)


@pytest.mark.parametrize(("storage", "group"), STORAGES)
def test_gemm_equals_gemv(device, rng, storage, group):
    """A row of the GEMM is the GEMV of that row."""
    cols = 3 * group or 259
    weight = make_weight(rng, storage, group, (67, cols), scale=0.5)
    x = as_activation(device, rows_of(rng, 7, cols))
    single = np.concatenate([run(device, x[t : t + 1], [weight]) for t in range(7)])
    _, magnitude = expected(x, [weight])
    tolerance = sum_tolerance(cols) + matrix_tolerance(device, cols)  # both may be off
    nmse = rounding_nmse(device)
    got = run(device, x, [weight])
    assert_close(got, single, tolerance=tolerance, magnitude=magnitude, nmse=nmse)


@pytest.mark.parametrize("scale", [1e-20, 1e15])
@pytest.mark.parametrize("tokens", [1, 5])
def test_magnitudes(device, rng, tokens, scale):
    """No overflow and no flush to zero where float32 has room."""
    weight = make_weight(rng, "q8", 64, (9, 128), scale=0.5)
    x = rows_of(rng, tokens, 128) * np.float32(scale)
    assert_product(device, run(device, x, [weight]), x, [weight])


@pytest.mark.parametrize("tokens", [1, 5])
def test_rows_do_not_mix(device, rng, tokens):
    """A NaN in one row of the weights stays in its column; one in x, in its row."""
    weight = make_weight(rng, "f32", 0, (37, 33), scale=0.5)
    weight.data[20, 32] = np.nan
    x = rows_of(rng, tokens, 33)
    got = run(device, x, [weight])
    assert np.isnan(got[:, 20]).all()
    assert np.isfinite(np.delete(got, 20, axis=1)).all()
    if tokens > 1:
        weight.data[20, 32] = 0
        x[2, 0] = np.inf
        assert np.isfinite(np.delete(run(device, x, [weight]), 2, axis=0)).all()


@pytest.mark.parametrize(("storage", "group"), [("f32", 0), ("bf16", 0), ("q4", 64), ("q8", 32)])
def test_thread_counts_agree(thread_counts, rng, storage, group):
    """An element does not depend on who computed it."""
    cols = 3 * group or 259
    weight = make_weight(rng, storage, group, (131, cols), scale=0.5)
    one, many = rows_of(rng, 1, cols), rows_of(rng, 70, cols)
    gain = rng.standard_normal(cols).astype(np.float32)
    assert_same_bits(
        [
            {
                "gemv": run(device, one, [weight]),
                "gemm": run(device, many, [weight]),
                "norm": run_norm(device, one, gain, [weight]),
                "add": run_add(device, many, weight, np.ones((70, 131), np.float32)),
            }
            for device in thread_counts
        ]
    )


def test_refusals(host, rng):
    """Each wrong tensor and matrix is named."""
    arena = Arena(host)
    matrices = [arena.matrix(make_weight(rng, "q4", 32, (rows, 64), scale=1.0)) for rows in (3, 5)]
    other = arena.matrix(make_weight(rng, "q4", 32, (3, 96), scale=1.0))
    x, y = arena.output(2, 64), arena.output(2, 8)
    valid = {"y": y, "x": x, "segments": matrices}
    assert_refused(native.linear, valid, tensors_of(valid))
    wrong = r"segments\[1\] has shape \[3, 96\], expected \[3, 64\] \(rows, cols\)"
    assert_refused(native.linear, valid | {"segments": [matrices[0], other]}, wrong)
    assert_refused(native.linear, valid | {"segments": []}, "number of rows of all segments is 0")
    wrong = r"y has shape \[2, 8\], expected \[2, 3\]"
    assert_refused(native.linear, valid | {"segments": matrices[:1]}, wrong)

    valid = {"y": arena.output(2, 5), "x": x, "weight": matrices[1]}
    assert_refused(native.linear_add, valid, tensors_of(valid))
    assert_refused(native.linear_add, valid | {"weight": other}, r"weight has shape \[3, 96\]")

    valid = {
        "y": arena.output(1, 8),
        "x": arena.output(1, 64),
        "gain": arena.output(64),
        "eps": EPS,
        "segments": matrices,
    }
    assert_refused(native.linear_norm, valid, tensors_of(valid))
    assert_refused(native.linear_norm, valid | {"x": x}, r"x has shape \[2, 64\], expected \[1, 64")


def _dispatches(device: native.Device, x: np.ndarray, weights: list[Weight]) -> int:
    arena = Arena(device)
    step = arena.step()
    y = arena.output(len(x), sum(len(weight.values) for weight in weights))
    native.linear(step, y, rows_on(arena, x), [arena.matrix(weight) for weight in weights])
    return len(step)
