"""Checks of the kernels that the privacy gate's encoder has for itself, at the shapes of its model.

Owns inputs, expected values and tolerances of each; knows no device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lily._native import kernels as native
from lily.doctor import reference as ref
from lily.doctor.check import Check, Prepared
from lily.doctor.compare import attended, rounded, single
from lily.doctor.tensors import Array, Float32, Place, normal

MODEL = "gate"
_HIDDEN, _HEADS, _INNER, _FORMS, _PLACES = 384, 12, 1536, 24, 128
_EPS = 1e-12
_BYTES = 1 << 24


def encoder_checks(windows: Sequence[int]) -> list[Check]:
    """One of every kernel, over windows of so many tokens side by side."""
    rows = sum(windows)
    return [_embed(rows), _norm(rows), _attention(windows), _gelu(rows), _pool(windows)]


def _offsets(windows: Sequence[int]) -> Array:
    return np.concatenate([[0], np.cumsum(windows)]).astype(np.uint32)


def _layer_norm(rows: ref.Float64, gain: Float32, shift: Float32) -> dict[str, Array]:
    """The residual and its copy for the next product."""
    centred = rows - rows.mean(-1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(-1, keepdims=True) + _EPS)
    normed = centred / deviation * ref.wide(gain) + ref.wide(shift)
    return {"hidden": normed, "y": normed}


def _embed(rows: int) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        words, gain, shift = normal(rng, rows, _HIDDEN), normal(rng, _HIDDEN), normal(rng, _HIDDEN)
        place_table, form_table = normal(rng, _PLACES, _HIDDEN), normal(rng, _FORMS, _HIDDEN)
        places = rng.integers(0, _PLACES, rows, dtype=np.uint32)
        forms = rng.integers(0, _FORMS, rows, dtype=np.uint32)

        def record(place: Place, step: native.Step, turn: int) -> None:
            hidden = place.inout("hidden", words)
            y = place.activation_output("y", rows, _HIDDEN)
            native.encoder_embed(
                step,
                y,
                hidden,
                place.tensor(places),
                place.tensor(forms),
                place.tensor(place_table),
                place.tensor(form_table),
                place.tensor(gain),
                place.tensor(shift),
                _EPS,
            )

        def want() -> dict[str, Array]:
            summed = ref.wide(words) + place_table[places] + form_table[forms]
            return _layer_norm(summed, gain, shift)

        exact = single(_HIDDEN)
        return Prepared(record, want, lambda act: {"hidden": exact, "y": rounded(exact, act)})

    return Check("encoder_embed", MODEL, f"{rows}x{_HIDDEN}", prepare, _BYTES)


def _norm(rows: int) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        before, bias = normal(rng, rows, _HIDDEN), normal(rng, _HIDDEN)
        gain, shift = normal(rng, _HIDDEN), normal(rng, _HIDDEN)

        def record(place: Place, step: native.Step, turn: int) -> None:
            hidden = place.inout("hidden", before)
            y = place.activation_output("y", rows, _HIDDEN)
            scale, added = place.tensor(gain), place.tensor(shift)
            native.encoder_norm(step, y, hidden, place.tensor(bias), scale, added, _EPS)

        def want() -> dict[str, Array]:
            return _layer_norm(ref.wide(before) + bias, gain, shift)

        exact = single(_HIDDEN)
        return Prepared(record, want, lambda act: {"hidden": exact, "y": rounded(exact, act)})

    return Check("encoder_norm", MODEL, f"{rows}x{_HIDDEN}", prepare, _BYTES)


def _attention(windows: Sequence[int]) -> Check:
    rows = sum(windows)

    def prepare(rng: np.random.Generator) -> Prepared:
        qkv, bias = normal(rng, rows, 3 * _HIDDEN), normal(rng, 3 * _HIDDEN)

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.activation_output("y", rows, _HIDDEN)
            rows_of, offsets = place.tensor(qkv), place.tensor(_offsets(windows))
            longest = max(windows)
            native.encoder_attention(step, y, rows_of, place.tensor(bias), offsets, _HEADS, longest)

        def want() -> dict[str, Array]:
            parts = []
            for part in np.split(ref.wide(qkv) + bias, np.cumsum(windows)[:-1]):
                q, k, v = part.reshape(len(part), 3, _HEADS, -1).transpose(1, 2, 0, 3)
                weights = ref.softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
                parts.append((weights @ v).transpose(1, 0, 2).reshape(len(part), -1))
            return {"y": np.concatenate(parts)}

        return Prepared(record, want, lambda act: {"y": attended(act)})

    return Check("encoder_attention", MODEL, _shown(windows), prepare, _BYTES)


def _gelu(rows: int) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        x, bias = normal(rng, rows, _INNER), normal(rng, _INNER)

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.activation_output("y", rows, _INNER)
            native.encoder_gelu(step, y, place.tensor(x), place.tensor(bias))

        def want() -> dict[str, Array]:
            summed = ref.wide(x) + bias
            tails = [math.erfc(-value / math.sqrt(2.0)) for value in summed.ravel()]
            return {"y": 0.5 * summed * np.reshape(tails, summed.shape)}

        return Prepared(record, want, lambda act: {"y": rounded(single(8), act)})

    return Check("encoder_gelu", MODEL, f"{rows}x{_INNER}", prepare, _BYTES)


def _pool(windows: Sequence[int]) -> Check:
    def prepare(rng: np.random.Generator) -> Prepared:
        hidden = normal(rng, sum(windows), _HIDDEN)

        def record(place: Place, step: native.Step, turn: int) -> None:
            y = place.activation_output("y", len(windows), 2 * _HIDDEN)
            native.encoder_pool(step, y, place.tensor(hidden), place.tensor(_offsets(windows)))

        def want() -> dict[str, Array]:
            parts = np.split(ref.wide(hidden), np.cumsum(windows)[:-1])
            return {"y": np.stack([np.concatenate([p.mean(0), p.max(0)]) for p in parts])}

        return Prepared(record, want, lambda act: {"y": rounded(single(max(windows)), act)})

    return Check("encoder_pool", MODEL, _shown(windows), prepare, _BYTES)


def _shown(windows: Sequence[int]) -> str:
    return f"windows of {', '.join(map(str, windows))} x{_HIDDEN}"
