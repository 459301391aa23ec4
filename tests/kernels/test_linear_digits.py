"""linear by integer matrix units (digits.h): what NVIDIA's tiles choose for 4-bit weights.

Other GPU devices run the same kernels with a body in plain MSL.
"""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference
from kernels.arena import Arena
from kernels.compare import assert_close, sum_tolerance
from kernels.test_linear import EPS, assert_product, expected, rows_of, run, run_add, run_norm
from kernels.weights import make_weight

pytestmark = pytest.mark.usefixtures("nvidia_tiles")

# (rows, cols): one slice of columns, all slices of either tile, tiles that end in a rest, and more
# rows than two groups on each multiprocessor would have.
SHAPES = [(5, 256), (67, 768), (33, 2048), (19, 2560), (16, 4096), (8449, 256)]


def launched(device: native.Device, x: np.ndarray, weight, *, norm: bool = False) -> str:
    """The kernel that a product with this weight takes."""
    arena = Arena(device)
    step, y = arena.step(), arena.output(1, len(weight.values))
    if norm:
        gain = arena.output(x.shape[1])
        native.linear_norm(step, y, arena.input(x), gain, EPS, [arena.matrix(weight)])
    else:
        native.linear(step, y, arena.input(x), [arena.matrix(weight)])
    return step.describe()


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_products(device, rng, rows, cols):
    """Plain, added to the residual stream, and with the norm folded in."""
    weight = make_weight(rng, "q4", 64, (rows, cols), scale=0.5)
    x = rows_of(rng, 1, cols)
    tile = "_i48x256" if rows > 8448 else "_i32x256" if cols <= 2048 else "_i16x512"
    assert tile in launched(device, x, weight)
    assert_product(device, run(device, x, [weight]), x, [weight])

    residual = (rng.standard_normal((1, rows)) * 3).astype(np.float32)
    want, magnitude = expected(x, [weight])
    tolerance = sum_tolerance(cols)
    got = run_add(device, x, weight, residual)
    assert_close(got, want + residual, magnitude=magnitude + np.abs(residual), tolerance=tolerance)

    gain = rng.uniform(0.5, 1.5, cols).astype(np.float32)
    normed = reference.rms_norm(x, gain, EPS)
    want, magnitude = expected(normed, [weight])
    got = run_norm(device, x, gain, [weight])
    assert_close(got, want, magnitude=magnitude, tolerance=sum_tolerance(2 * cols))


def test_segments(device, rng):
    """Tiles that span matrices."""
    weights = [make_weight(rng, "q4", 64, (n, 512), scale=0.5) for n in (33, 1, 7, 50)]
    x = rows_of(rng, 1, 512)
    assert_product(device, run(device, x, weights), x, weights)


@pytest.mark.parametrize(
    ("storage", "group", "cols"),
    [("q4", 32, 512), ("q4", 64, 192), ("q4", 64, 8192), ("q8", 64, 512)],
)
def test_others_have_no_digits(device, rng, storage, group, cols):
    """Other groups, columns that are no whole slices or too many, other codes."""
    weight = make_weight(rng, storage, group, (3, cols), scale=0.5)
    x = rows_of(rng, 1, cols)
    assert "_i" not in launched(device, x, weight).split()[0]
    assert_product(device, run(device, x, [weight]), x, [weight])


def test_ranges(device, rng):
    """Groups of 64 of very different sizes, outliers, zeros and the smallest numbers."""
    weight = make_weight(rng, "q4", 64, (20, 512), scale=0.5)
    x = rng.standard_normal((1, 512)).astype(np.float32)
    x[0, :64] *= 1e30
    x[0, 64:128] *= 1e-30
    x[0, 128:192] = 0
    x[0, 192:256] = 1e-40
    x[0, 300] = 5e4
    x[0, 320:384] = -1
    x[0, 384] = 2.0 - 2.0**-23  # the largest of its power of two
    x[0, 385] = -(2.0 - 2.0**-23)
    for first in (0, 64, 192, 256):  # what a larger group would hide
        part = np.zeros_like(x)
        part[0, first:] = x[0, first:]
        assert_product(device, run(device, part, [weight]), part, [weight])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_so(device, rng, bad):
    """In every row of the product."""
    weight = make_weight(rng, "q4", 64, (20, 512), scale=0.5)
    x = rows_of(rng, 1, 512)
    x[0, 77] = bad
    assert not np.isfinite(run(device, x, [weight])).any()
