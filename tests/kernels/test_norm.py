"""norm: RMSNorm of rows of the residual stream."""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native
from lily.errors import InvalidInput

from kernels import reference
from kernels.arena import Arena, floats
from kernels.compare import assert_close, assert_same_bits, matrix_tolerance, rounding_nmse
from kernels.refusals import assert_refused, tensors_of

EPS = 1e-6


def run(device: native.Device, x: np.ndarray, gain: np.ndarray, eps: float = EPS) -> np.ndarray:
    """Normalised rows."""
    arena = Arena(device)
    y = arena.activation_output(*x.shape)
    arena.run(native.norm_rms, y, arena.input(x), arena.input(gain), eps)
    return floats(y)


def inputs(
    rng: np.random.Generator, tokens: int, hidden: int, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows with an offset (a mean that is not zero) and gains of both signs."""
    x = ((rng.standard_normal((tokens, hidden)) + 0.5) * scale).astype(np.float32)
    return x, rng.standard_normal(hidden).astype(np.float32)


def assert_norm(device, x, gain, eps=EPS):
    """Each element to its own size: nothing cancels in RMSNorm."""
    want = reference.rms_norm(x, gain, eps)
    tolerance = matrix_tolerance(device, x.shape[1])  # one rounding to the type of activations
    nmse = rounding_nmse(device)
    got = run(device, x, gain, eps)
    assert_close(got, want, tolerance=tolerance, magnitude=np.abs(want), nmse=nmse)


@pytest.mark.parametrize("hidden", [1, 31, 32, 33, 64, 100, 4099])
@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 33])
def test_rows(device, rng, tokens, hidden):
    """Widths around every SIMD width."""
    assert_norm(device, *inputs(rng, tokens, hidden))


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 3e4, 1e15])
def test_magnitudes(device, rng, scale):
    """Tiny rows meet eps, large ones square to 1e32."""
    assert_norm(device, *inputs(rng, 3, 100, scale))


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.25])
def test_eps(device, rng, eps):
    """eps is added to the mean, not to the sum or the root."""
    assert_norm(device, *inputs(rng, 2, 67, 0.3), eps)


def test_zero_row(device):
    """A row of zeros stays zero."""
    got = run(device, np.zeros((2, 33), np.float32), np.ones(33, np.float32))
    np.testing.assert_array_equal(got, 0)


def test_rows_do_not_mix(device, rng):
    """A NaN in one row stays in it."""
    x, gain = inputs(rng, 3, 100)
    x[1, 50] = np.nan
    got = run(device, x, gain)
    assert np.isnan(got[1]).all()
    assert np.isfinite(got[[0, 2]]).all()


def test_activations_that_a_device_lacks(host):
    """Another type of activations is another kernel: refused, and never misread."""
    arena, step = Arena(host), native.Step()
    y = arena.output(2, 33, dtype="f16")
    native.norm_rms(step, y, arena.output(2, 33), arena.output(33), EPS)
    with pytest.raises(InvalidInput, match="norm_rms_f16"):
        host.run(step)


def test_thread_counts_agree(thread_counts, rng):
    """A row does not depend on who computed it."""
    x, gain = inputs(rng, 33, 259)
    assert_same_bits([{"y": run(device, x, gain)} for device in thread_counts])


def test_refusals(host):
    """Each wrong tensor is named, with what was given and expected."""
    arena = Arena(host)
    valid = {
        "y": arena.output(3, 64),
        "x": arena.output(3, 64),
        "gain": arena.output(64),
        "eps": EPS,
    }
    assert_refused(native.norm_rms, valid, tensors_of(valid))
    short = valid | {"gain": arena.output(32)}
    assert_refused(native.norm_rms, short, r"gain has shape \[32\], expected \[64\] \(hidden\)")
    wide = valid | {"y": arena.output(3, 65)}
    expected = r"y has shape \[3, 65\], expected \[3, 64\] \(tokens, hidden\)"
    assert_refused(native.norm_rms, wide, expected)
    assert_refused(native.norm_rms, valid | {"eps": -1.0}, "eps is -1")
    assert_refused(native.norm_rms, valid | {"eps": float("nan")}, "eps is nan")
