"""moe at prefill: route, sort, the experts' grouped products, and their sum, for many rows."""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference
from kernels.arena import Arena, as_activation, floats
from kernels.compare import BF16_ROUNDING, assert_close, assert_same_bits, sum_tolerance
from kernels.layers import Experts, make_experts
from kernels.refusals import assert_refused, tensors_of
from kernels.test_moe import EPS, MIXES, SIZES, TOLERANCE, logits_with_ties, run_decode
from kernels.weights import STORAGES, Weight, make_weight


def assert_products(device: native.Device, got: np.ndarray, want: np.ndarray) -> None:
    """Products in a row of three, against the largest.

    On bf16 matrix units every weight and activation is rounded by up to BF16_ROUNDING: an error of
    a few of them in the mean square, and of three at the worst of thousands of elements.
    """
    if device.activation_dtype == "f32":
        assert_close(got, want, tolerance=TOLERANCE)
    else:
        assert_close(got, want, tolerance=3 * BF16_ROUNDING, nmse=2 * BF16_ROUNDING**2)


def run_route(device: native.Device, logits: np.ndarray, slots: int) -> tuple[np.ndarray, ...]:
    """(ids, weights)."""
    arena = Arena(device)
    ids = arena.output(len(logits), slots, dtype="u32")
    weights = arena.output(len(logits), slots + 1)
    arena.run(native.moe_route, ids, weights, arena.input(logits))
    return ids.numpy(), weights.numpy()


@pytest.mark.parametrize("tokens", [1, 2, 7, 33, 130])
@pytest.mark.parametrize(
    ("experts", "slots"), [(5, 1), (5, 5), (8, 2), (64, 8), (256, 8), (33, 16)]
)
def test_route(device, rng, experts, slots, tokens):
    """Top-k, softmax over the chosen, and the shared expert's sigmoid."""
    spread = rng.standard_normal((tokens, experts + 1)).astype(np.float32) * 3
    for logits in (spread, spread * np.float32(100), logits_with_ties(rng, tokens, experts)):
        ids, weights = run_route(device, logits, slots)
        want_ids, want_weights = reference.route(logits, slots)
        np.testing.assert_array_equal(ids, want_ids)
        # A logit of size 300 has float32 spacing 3e-5, but their difference is exact enough.
        assert_close(weights, want_weights, tolerance=2e-6)


@pytest.mark.parametrize("tokens", [1, 2, 7, 33, 130, 1031])
@pytest.mark.parametrize(("experts", "slots"), [(5, 1), (5, 3), (64, 8), (256, 8)])
def test_sort(device, rng, experts, slots, tokens):
    """A stable counting sort, experts without rows included."""
    ids = rng.integers(0, experts, (tokens, slots), dtype=np.uint32)
    ids[ids == 2] = 3  # nobody chooses expert 2
    arena = Arena(device)
    order = arena.output(tokens * slots, dtype="u32")
    offsets = arena.output(experts + 1, dtype="u32")
    arena.run(native.moe_sort, order, offsets, arena.input(ids))
    flat = ids.ravel()
    np.testing.assert_array_equal(order.numpy(), np.argsort(flat, kind="stable"))
    counts = np.bincount(flat, minlength=experts)
    np.testing.assert_array_equal(offsets.numpy(), np.concatenate([[0], np.cumsum(counts)]))


@pytest.mark.parametrize("tokens", [1, 3, 33])
@pytest.mark.parametrize(("storage", "group"), STORAGES)
def test_grouped_products(device, rng, storage, group, tokens):
    """Rows of each expert by its own weights; gate and up interleaved in one tensor."""
    experts, slots = 6, 3
    hidden, width, out = (2 * group, group, 67) if group else (100, 33, 67)
    # Gate and up of one expert stand one after the other, as in HF files.
    fused = make_weight(rng, storage, group, (experts, 2 * width, hidden), hidden**-0.5)
    down = make_weight(rng, storage, group, (experts, out, width), width**-0.5)
    ids = rng.choice([0, 1, 3, 5], (tokens, slots)).astype(np.uint32)  # 2 and 4 have no rows
    order = np.argsort(ids.ravel(), kind="stable").astype(np.uint32)
    offsets = np.searchsorted(ids.ravel()[order], np.arange(experts + 1)).astype(np.uint32)
    x = rng.standard_normal((tokens, hidden)).astype(np.float32)

    arena = Arena(device)
    gate, up = _gate_and_up(arena, fused)
    act, y = arena.activation_output(tokens * slots, width), arena.output(tokens * slots, out)
    sorting = arena.input(order), arena.input(offsets)
    step = arena.step()
    native.moe_grouped_gate_up(step, act, arena.activation(x), *sorting, gate, up, slots)
    native.moe_grouped_down(step, y, act, *sorting, arena.matrix(down))
    arena.run_step(step)

    rows = reference.f64(as_activation(device, x))[order // slots]
    of = ids.ravel()[order]
    want_act = np.stack(
        [
            reference.swiglu(row, fused.values[e, :width], fused.values[e, width:])
            for row, e in zip(rows, of, strict=True)
        ]
    )
    want_y = np.empty((tokens * slots, out))
    for slot, row, e in zip(order, want_act, of, strict=True):
        want_y[slot] = down.values[e] @ row
    assert_products(device, floats(act), want_act)
    assert_products(device, y.numpy(), want_y)


def _gate_and_up(arena: Arena, fused: Weight) -> tuple[native.Matrix, native.Matrix]:
    """Two stacks that share one tensor, each expert `2 * width` rows after the one before."""
    experts, both, cols = fused.values.shape
    width = both // 2
    parts = [part for part in (fused.data, fused.scales, fused.biases) if part is not None]
    tensors = [(arena.weight(part), part[0, 0].nbytes) for part in parts]

    def half(first_row: int) -> native.Matrix:
        views = []
        for tensor, row_bytes in tensors:
            begin = first_row * row_bytes
            views.append(tensor.part(begin, [tensor.shape[0] - begin]))
        return native.Matrix(
            fused.storage,
            *views,
            rows=width,
            cols=cols,
            group_size=fused.group_size,
            experts=experts,
            expert_stride_rows=both,
        )

    return half(0), half(width)


@pytest.mark.parametrize("tokens", [1, 7, 33])
@pytest.mark.parametrize(("storage", "group"), [("f32", 0), ("bf16", 0), ("q4", 64)])
def test_identity_order(device, rng, storage, group, tokens):
    """Rows as they stand: how the shared expert runs."""
    hidden, width = (2 * group, group) if group else (100, 33)
    gate, up = (
        make_weight(rng, storage, group, (1, width, hidden), hidden**-0.5) for _ in range(2)
    )
    down = make_weight(rng, storage, group, (1, hidden, width), width**-0.5)
    x = rng.standard_normal((tokens, hidden)).astype(np.float32)
    arena = Arena(device)
    act, y = arena.activation_output(tokens, width), arena.output(tokens, hidden)
    order = arena.input(np.arange(tokens, dtype=np.uint32))
    offsets = arena.input(np.array([0, tokens], np.uint32))
    step = arena.step()
    native.moe_grouped_gate_up(
        step, act, arena.activation(x), order, offsets, arena.matrix(gate), arena.matrix(up), 1
    )
    native.moe_grouped_down(step, y, act, order, offsets, arena.matrix(down))
    arena.run_step(step)
    want = reference.swiglu(reference.f64(as_activation(device, x)), gate.values[0], up.values[0])
    assert_products(device, floats(act), want)
    assert_products(device, y.numpy(), want @ down.values[0].T)


@pytest.mark.parametrize("tokens", [1, 2, 7, 33])
@pytest.mark.parametrize(("hidden", "slots"), [(31, 1), (100, 3), (259, 8)])
def test_combine(device, rng, hidden, slots, tokens):
    """Weighted sum of the slots and the shared expert, into the residual."""
    y = rng.standard_normal((tokens * slots, hidden)).astype(np.float32)
    shared, residual = rng.standard_normal((2, tokens, hidden)).astype(np.float32)
    weights = rng.uniform(0, 1, (tokens, slots + 1)).astype(np.float32)
    arena = Arena(device)
    total = arena.inout(residual)
    arena.run(native.moe_combine, total, *(arena.input(part) for part in (y, shared, weights)))
    wide = reference.f64(y).reshape(tokens, slots, hidden)
    routed = np.einsum("tsh,ts->th", wide, weights[:, :-1].astype(np.float64))
    want = residual + routed + shared * weights[:, -1:].astype(np.float64)
    assert_close(total.numpy(), want, tolerance=sum_tolerance(slots + 2))


def run_prefill(
    device: native.Device, layer: Experts, x: np.ndarray, gain: np.ndarray
) -> dict[str, np.ndarray]:
    """The whole layer by the prefill kernels."""
    arena = Arena(device)
    matrices = {name: arena.matrix(weight) for name, weight in layer.weights.items()}
    tokens, hidden = x.shape
    experts, width = layer.weights["gate"].values.shape[:2]
    shared_width, slots = len(layer.weights["shared_gate"].values), layer.slots
    rows = tokens * slots
    residual = arena.inout(x * 2 + 1)
    normed, logits = arena.activation_output(tokens, hidden), arena.output(tokens, experts + 1)
    ids = arena.output(tokens, slots, dtype="u32")
    weights = arena.output(tokens, slots + 1)
    order, offsets = arena.output(rows, dtype="u32"), arena.output(experts + 1, dtype="u32")
    act, y = arena.activation_output(rows, width), arena.output(rows, hidden)
    shared_act = arena.activation_output(tokens, shared_width)
    shared = arena.output(tokens, hidden)
    whole = arena.input(np.array([0, tokens], np.uint32))
    step = arena.step()
    native.norm_rms(step, normed, arena.input(x), arena.input(gain), EPS)
    native.linear(step, logits, normed, [matrices["router"], matrices["shared_router"]])
    native.moe_route(step, ids, weights, logits)
    native.moe_sort(step, order, offsets, ids)
    gate, up = matrices["gate"], matrices["up"]
    native.moe_grouped_gate_up(step, act, normed, order, offsets, gate, up, slots)
    native.moe_grouped_down(step, y, act, order, offsets, matrices["down"])
    gate, up = matrices["shared_gate"], matrices["shared_up"]
    as_they_stand = arena.input(np.arange(tokens, dtype=np.uint32))
    native.moe_grouped_gate_up(step, shared_act, normed, as_they_stand, whole, gate, up, 1)
    native.moe_grouped_down(step, shared, shared_act, as_they_stand, whole, matrices["shared_down"])
    native.moe_combine(step, residual, y, shared, weights)
    arena.run_step(step)
    return {"residual": residual.numpy(), "ids": ids.numpy(), "logits": logits.numpy()}


@pytest.mark.parametrize("mix", MIXES)
def test_prefill_equals_decode(device, rng, mix):
    """Many rows at once give what each gives alone."""
    layer = make_experts(rng, mix, **SIZES)
    x = rng.standard_normal((9, SIZES["hidden"])).astype(np.float32)
    gain = rng.uniform(0.5, 1.5, SIZES["hidden"]).astype(np.float32)
    many = run_prefill(device, layer, x, gain)
    single = [
        run_decode(device, layer, row[None], gain, logits[None])
        for row, logits in zip(x, many["logits"], strict=True)
    ]
    for name in ("ids", "logits", "residual"):
        want = np.concatenate([row[name] for row in single])
        assert_products(device, many[name], want)


def test_thread_counts_agree(thread_counts, rng):
    """No sum over experts depends on who computed it."""
    layer = make_experts(rng, MIXES[2], **SIZES)
    x = rng.standard_normal((33, SIZES["hidden"])).astype(np.float32)
    gain = np.ones(SIZES["hidden"], np.float32)
    assert_same_bits([run_prefill(device, layer, x, gain) for device in thread_counts])


def test_refusals(host, rng):
    """Each wrong tensor and matrix is named."""
    arena = Arena(host)

    def indices(*shape):
        return arena.output(*shape, dtype="u32")

    gate, up, wide = (
        arena.matrix(make_weight(rng, "q4", 32, (5, width, 64), 1.0)) for width in (32, 32, 64)
    )
    down = arena.matrix(make_weight(rng, "bf16", 0, (5, 64, 32), 1.0))
    order, offsets = indices(6), indices(6)
    operations = [
        (
            native.moe_route,
            {"ids": indices(3, 2), "weights": arena.output(3, 3), "logits": arena.output(3, 6)},
        ),
        (native.moe_sort, {"order": order, "offsets": offsets, "ids": indices(3, 2)}),
        (
            native.moe_grouped_gate_up,
            {
                "act": arena.output(6, 32),
                "x": arena.output(3, 64),
                "order": order,
                "offsets": offsets,
                "gate": gate,
                "up": up,
                "slots": 2,
            },
        ),
        (
            native.moe_grouped_down,
            {
                "y": arena.output(6, 64),
                "act": arena.output(6, 32),
                "order": order,
                "offsets": offsets,
                "down": down,
            },
        ),
        (
            native.moe_combine,
            {
                "residual": arena.output(3, 64),
                "y": arena.output(6, 64),
                "shared": arena.output(3, 64),
                "weights": arena.output(3, 3),
            },
        ),
    ]
    for operation, valid in operations:
        assert_refused(operation, valid, tensors_of(valid))
    route, grouped = operations[0][1], operations[2][1]
    many = route | {"ids": indices(3, 6), "weights": arena.output(3, 7)}
    assert_refused(native.moe_route, many, "ids has 6 slots, expected up to 16 and up to experts")
    assert_refused(native.moe_grouped_gate_up, grouped | {"up": wide}, r"up has shape \[5, 64, 64")
    apart = native.Matrix("bf16", arena.output(9 * 64 * 32, dtype="bf16"), rows=64, cols=32,
                          experts=2, expert_stride_rows=65)  # fmt: skip
    valid = operations[3][1] | {"down": apart, "offsets": indices(3)}
    assert_refused(native.moe_grouped_down, valid, "down has 65 rows between experts")
