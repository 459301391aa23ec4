"""How device results are judged: finite first, then the largest error, then the mean error.

This file owns the comparators and the sources of tolerances. It knows no kernel.
"""

from __future__ import annotations

import numpy as np
from lily._native import kernels as native
from numpy.typing import ArrayLike, NDArray

ULP = 2.0**-24  # half the spacing of float32 at 1: the rounding error of one operation
BF16_ROUNDING = 2.0**-8  # the spacing of bf16 at 1 is 2**-7: a rounding moves it by half of that
NMSE = 1e-9  # float32 kernels stay near 1e-13; a wrong term in a thousand gives 1e-6


def sum_tolerance(terms: int) -> float:
    """Relative error of a float32 sum of this many terms, against the sum of their magnitudes.

    The worst case is ``terms`` roundings; independent ones add up as their root. Four roots leave
    room for any order of summation, and eight roundings for what is done to each term.
    """
    return float(ULP * (8 + 4 * np.sqrt(terms)))


def matrix_tolerance(device: native.Device, terms: int) -> float:
    """As sum_tolerance, for products by a device's matrix units.

    Where activations are bf16, so are the decoded weights: each term is off by one such rounding.
    """
    rounding = 0.0 if device.activation_dtype == "f32" else BF16_ROUNDING
    return rounding + sum_tolerance(terms)


def rounding_nmse(device: native.Device) -> float:
    """The NMSE that roundings to the type of activations explain: BF16_ROUNDING**2 / 3 each."""
    return NMSE if device.activation_dtype == "f32" else BF16_ROUNDING**2


def assert_close(
    got: ArrayLike,
    want: ArrayLike,
    *,
    tolerance: float,
    magnitude: ArrayLike | None = None,
    nmse: float = NMSE,
) -> None:
    """Check |got - want| <= tolerance * magnitude, by default the largest |want|, and the NMSE."""
    actual, expected = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    finite = np.isfinite(actual)
    assert finite.all(), (
        f"{(~finite).sum()} of {actual.size} not finite, first at {_first(~finite)}"
    )
    scale = np.abs(expected).max() if magnitude is None else np.asarray(magnitude, np.float64)
    error = np.abs(actual - expected)
    excess = error > tolerance * np.broadcast_to(scale, error.shape)
    if excess.any():
        at = np.unravel_index(np.argmax(np.where(excess, error, 0)), error.shape)
        place = tuple(int(axis) for axis in at)
        raise AssertionError(
            f"{excess.sum()} of {error.size} past {tolerance:.2e}: at {place} got {actual[at]!r}, "
            f"expected {expected[at]!r} (error {error[at]:.3e})"
        )
    power = float(np.square(expected).sum())
    mean = float(np.square(error).sum()) / power if power else 0.0
    assert mean <= nmse, f"NMSE {mean:.3e}, expected at most {nmse:.1e}"


def assert_same_bits(results: list[dict[str, NDArray[np.generic]]]) -> None:
    """Check that runs gave the same bytes under every name."""
    first = results[0]
    for other in results[1:]:
        assert first.keys() == other.keys()
        for name, array in first.items():
            assert array.tobytes() == other[name].tobytes(), f"{name} differs"


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.argwhere(mask)[0])
