"""When two results count as the same, and what is said where they do not.

Owns tolerances and their sources. Errors are judged against the largest expected value, and in the
mean square besides, which sees a wrong term that no single element shows. Knows no kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lily.doctor.tensors import Array

_ULP = 2.0**-24  # half the spacing of float32 at 1: the error of one rounding
_NMSE = 1e-9  # float32 kernels stay near 1e-13; one wrong term in a thousand gives 1e-6
# The error of one rounding to the type of activations, relative to the value.
ROUNDING = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11}


@dataclass(frozen=True)
class Rule:
    """How far a result may be off: at most, as a share of the largest, and in the mean square."""

    largest: float
    nmse: float
    has_nan: bool = False  # a cache, whose unused rows are NaN on purpose


EXACT = Rule(0.0, 0.0)


def single(terms: int) -> Rule:
    """A float32 sum of so many terms.

    Independent roundings add up as the root of their number; four roots leave room for any order
    and for terms that cancel, eight roundings for what is done to each term.
    """
    return Rule(_ULP * (8 + 4 * float(np.sqrt(terms))), _NMSE)


def chained(largest: float = 2e-5) -> Rule:
    """Several float32 sums in a row with exponentials between them (softmax, the delta rule)."""
    return Rule(largest, _NMSE)


def mixed(terms: int, activation: str, roundings: int = 3) -> Rule:
    """Products by matrix units, which take weights and rows in the type of activations.

    Two such roundings a product, and one of the result: a few of them at the worst of thousands of
    elements, and a root of two in the mean square. In float32 it is `single`.
    """
    rounding, exact = ROUNDING[activation], single(terms)
    share = roundings / 3
    return Rule(roundings * rounding + exact.largest, max(exact.nmse, 2 * (share * rounding) ** 2))


def cached() -> Rule:
    """Rows in a bf16 cache: one rounding, and values that float32 errors moved over its edge."""
    return Rule(ROUNDING["bf16"] * 1.01, ROUNDING["bf16"] ** 2, has_nan=True)


def rounded(rule: Rule, activation: str, roundings: int = 1) -> Rule:
    """The rule of a float32 result that is stored in, or made of, the type of activations."""
    error = roundings * ROUNDING[activation]
    return Rule(rule.largest + error, max(rule.nmse, error**2), rule.has_nan)


def attended(activation: str) -> Rule:
    """Attention's result, on a bf16 cache: matrix units take queries and weights in its type.

    A score of size s is off by s roundings, and so is its weight; results are rounded once more.
    """
    return rounded(chained(1e-4), "f32" if activation == "f32" else "bf16", 4)


@dataclass(frozen=True)
class Difference:
    """The worst of a comparison. `share` of what is allowed: past 1 is wrong."""

    share: float
    text: str  # empty where all is right


def compare(
    got: Mapping[str, Array], want: Mapping[str, Array], rules: Mapping[str, Rule]
) -> Difference:
    """Judge every result that has a rule."""
    worst = 0.0
    wrong = []
    for name, rule in rules.items():
        share, text = _judge(np.asarray(got[name]), np.asarray(want[name]), rule)
        worst = max(worst, share)
        if text:
            wrong.append(f"{name} {list(got[name].shape)}: {text}")
    return Difference(worst, "; ".join(wrong))


def same_bits(first: Mapping[str, Array], second: Mapping[str, Array]) -> str:
    """Says which results differ at all between two runs of the same thing."""
    names = [name for name in first if first[name].tobytes() != second[name].tobytes()]
    return f"two runs differ in {', '.join(names)}" if names else ""


def _judge(got: Array, want: Array, rule: Rule) -> tuple[float, str]:
    if got.shape != want.shape:
        return float("inf"), f"shape {list(got.shape)}, expected {list(want.shape)}"
    if rule is EXACT:
        return _judge_exact(got, want)
    actual, expected = got.astype(np.float64), want.astype(np.float64)
    void = np.isnan(expected) if rule.has_nan else np.zeros(expected.shape, bool)
    if not np.isfinite(expected[~void]).all():
        return float("inf"), "the reference itself is not finite"
    bad = ~np.isfinite(actual) & ~void | (void & ~np.isnan(actual))
    if bad.any():
        at = _first(bad)
        return float("inf"), (
            f"{bad.sum():,} of {bad.size:,} are not finite or not written, first at {at}: "
            f"{actual[at]!r}"
        )
    error = np.where(void, 0, np.abs(actual - expected))
    scale = float(np.abs(expected[~void]).max(initial=0.0)) or 1.0
    power = float(np.square(expected[~void]).sum()) or 1.0
    largest, mean = float(error.max()) / scale, float(np.square(error).sum()) / power
    share = max(largest / rule.largest, mean / rule.nmse)
    if share <= 1:
        return share, ""
    at = _first(error == error.max())
    past = int((error > rule.largest * scale).sum())
    return share, (
        f"{past:,} of {error.size:,} past {rule.largest:.1e} of the largest; worst at {at}: "
        f"{actual[at]:.6g}, expected {expected[at]:.6g}; NMSE {mean:.1e}, allowed {rule.nmse:.1e}"
    )


def _judge_exact(got: Array, want: Array) -> tuple[float, str]:
    differ = got != want
    if not differ.any():
        return 0.0, ""
    at = _first(differ)
    return float("inf"), (
        f"{differ.sum():,} of {differ.size:,} differ, first at {at}: {got[at]}, expected {want[at]}"
    )


def _first(mask: Array) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.argwhere(mask)[0])
