"""moe at decode: router, experts and the shared expert in three fused steps of one row."""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference
from kernels.arena import Arena
from kernels.compare import assert_close, assert_same_bits
from kernels.layers import Experts, make_experts
from kernels.refusals import assert_refused

EPS = 1e-6
# Products of up to 320 terms in a row of three: gate and up, SwiGLU, down. Relative to the largest
# element; terms cancel, so this is wider than a single sum's.
TOLERANCE = 1e-5

# (router, experts, shared expert): as in HF files, MLX files, and where every part differs.
MIXES = [
    (("f32", 0), ("f32", 0), ("f32", 0)),
    (("bf16", 0), ("bf16", 0), ("bf16", 0)),
    (("q8", 64), ("q4", 64), ("q4", 64)),
    (("q8", 32), ("q4", 32), ("q8", 64)),
    (("bf16", 0), ("q8", 64), ("q4", 32)),
    (("f32", 0), ("q4", 64), ("bf16", 0)),
]
SIZES = {"hidden": 192, "experts": 8, "slots": 3, "width": 64, "shared_width": 128}


def run_decode(
    device: native.Device,
    layer: Experts,
    x: np.ndarray,
    gain: np.ndarray,
    logits: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """The three decode steps on one row; `logits` replaces what the router gave."""
    arena = Arena(device)
    moe = layer.on(arena)
    experts, width = layer.weights["gate"].values.shape[:2]
    shared_width = len(layer.weights["shared_gate"].values)
    row, scale, residual = arena.input(x), arena.input(gain), arena.inout(x * 2 + 1)
    found = arena.output(1, experts + 1)
    shared_act = arena.output(1, shared_width)
    act = arena.output(layer.slots, width)
    ids = arena.output(1, layer.slots, dtype="u32")
    weights = arena.output(1, layer.slots + 1)
    chosen_from = found if logits is None else arena.input(logits)
    step = arena.step()
    native.moe_router(step, found, shared_act, row, scale, EPS, moe)
    native.moe_gate_up(step, act, ids, weights, chosen_from, row, scale, EPS, moe)
    native.moe_down(step, residual, act, shared_act, chosen_from, ids, weights, moe)
    arena.run_step(step)
    tensors = {
        "logits": found,
        "shared_act": shared_act,
        "act": act,
        "ids": ids,
        "weights": weights,
        "residual": residual,
    }
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def expected_decode(
    layer: Experts, x: np.ndarray, gain: np.ndarray, logits: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The same in float64; `logits` decide who is chosen, where given."""
    values = {name: weight.values for name, weight in layer.weights.items()}
    normed = reference.rms_norm(x, gain, EPS)
    router = np.concatenate([values["router"], values["shared_router"]])
    own_logits = normed @ router.T
    ids, weights = reference.route(own_logits if logits is None else logits, layer.slots)
    act = [reference.swiglu(normed, values["gate"][e], values["up"][e])[0] for e in ids[0]]
    shared_act = reference.swiglu(normed, values["shared_gate"], values["shared_up"])
    routed = sum(
        weight * values["down"][e] @ row
        for weight, e, row in zip(weights[0], ids[0], act, strict=False)
    )
    shared = weights[0, -1] * values["shared_down"] @ shared_act[0]
    return {
        "logits": own_logits,
        "shared_act": shared_act,
        "act": np.stack(act),
        "ids": ids,
        "weights": weights,
        "residual": x * 2.0 + 1.0 + routed + shared,
    }


def assert_decode(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    """Ids exactly, and the rest closely."""
    np.testing.assert_array_equal(got["ids"], want["ids"])
    for name in got.keys() - {"ids"}:
        assert_close(got[name], want[name], tolerance=TOLERANCE)


def row_and_gain(rng: np.random.Generator, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    """One row of the residual stream, and the gains of its norm."""
    x = (rng.standard_normal((1, hidden)) + 0.2).astype(np.float32)
    return x, rng.uniform(0.5, 1.5, hidden).astype(np.float32)


@pytest.mark.parametrize("mix", MIXES)
def test_decode(device, rng, mix):
    """Router to residual, in every mix of storages."""
    layer = make_experts(rng, mix, **SIZES)
    x, gain = row_and_gain(rng, SIZES["hidden"])
    got = run_decode(device, layer, x, gain)
    # Chosen by the device's own logits: two that are equal to rounding may stand either way.
    assert_decode(got, expected_decode(layer, x, gain, got["logits"]) | _logits(layer, x, gain))


def _logits(layer: Experts, x: np.ndarray, gain: np.ndarray) -> dict[str, np.ndarray]:
    return {"logits": expected_decode(layer, x, gain, None)["logits"]}


@pytest.mark.parametrize(("experts", "slots"), [(5, 1), (5, 5), (8, 2), (64, 7), (64, 8), (33, 16)])
def test_decode_sizes(device, rng, experts, slots):
    """Odd widths; one expert and all of them; as many as fit."""
    layer = make_experts(
        rng,
        MIXES[0],
        hidden=101,
        experts=experts,
        slots=slots,
        width=35,
        shared_width=19,
    )
    x, gain = row_and_gain(rng, 101)
    logits = rng.standard_normal((1, experts + 1)).astype(np.float32) * 2
    got = run_decode(device, layer, x, gain, logits)
    assert_decode(got, expected_decode(layer, x, gain, logits) | _logits(layer, x, gain))


def logits_with_ties(rng: np.random.Generator, tokens: int, experts: int) -> np.ndarray:
    """Few distinct values, so that most choices are between equals."""
    drawn = rng.integers(-2, 3, (tokens, experts + 1)).astype(np.float32)
    drawn[0] = 0  # all equal
    return drawn


@pytest.mark.parametrize("experts", [8, 200])
def test_decode_ties(device, rng, experts):
    """Equal logits: the lower expert first, on one lane and on several."""
    layer = make_experts(rng, MIXES[2], **SIZES | {"experts": experts})
    x, gain = row_and_gain(rng, SIZES["hidden"])
    for logits in logits_with_ties(rng, 4, experts):
        got = run_decode(device, layer, x, gain, logits[None])
        assert_decode(got, expected_decode(layer, x, gain, logits[None]) | _logits(layer, x, gain))


def test_thread_counts_agree(thread_counts, rng):
    """No sum over experts depends on who computed it."""
    layer = make_experts(rng, MIXES[2], **SIZES)
    x, gain = row_and_gain(rng, SIZES["hidden"])
    assert_same_bits([run_decode(device, layer, x, gain) for device in thread_counts])


def test_refusals(host, rng):
    """Each wrong tensor and matrix is named."""
    arena = Arena(host)
    sizes = {"hidden": 64, "experts": 5, "slots": 2, "width": 32, "shared_width": 96}
    layer = make_experts(rng, (("q8", 32), ("q4", 32), ("bf16", 0)), **sizes)
    matrices = {name: arena.matrix(weight) for name, weight in layer.weights.items()}
    shapes = {
        "x": (1, 64),
        "gain": (64,),
        "logits": (1, 6),
        "shared_act": (1, 96),
        "act": (2, 32),
        "weights": (1, 3),
        "residual": (1, 64),
    }
    tensors = {name: arena.output(*shape) for name, shape in shapes.items()}
    tensors["ids"] = arena.output(1, 2, dtype="u32")
    operations = {
        native.moe_router: ("logits", "shared_act", "x", "gain", "eps"),
        native.moe_gate_up: ("act", "ids", "weights", "logits", "x", "gain", "eps"),
        native.moe_down: ("residual", "act", "shared_act", "logits", "ids", "weights"),
    }
    for operation, names in operations.items():

        def rebuild(given, names=names):
            # "gate" is a matrix and "gain" a tensor, so that no two arguments share a name.
            moe = native.MoeWeights(
                **{name: given[name] for name in matrices}, slots=given["slots"]
            )
            return {name: given[name] for name in names} | {"moe": moe}

        valid = {**tensors, **matrices, "eps": EPS, "slots": 2}
        wrong = {name: it for name, it in tensors.items() if name in names}
        assert_refused(operation, valid, wrong, rebuild)
        tiny = native.Matrix("f32", arena.output(1), rows=1, cols=1)
        for name in matrices.keys() - {"router"}:  # the router's own shape is what others meet
            assert_refused(operation, valid | {name: tiny}, "has shape", rebuild)
        assert_refused(operation, valid | {"slots": 6}, "slots is 6, expected up to 16", rebuild)
        assert_refused(operation, valid | {"slots": 0}, "slots is 0", rebuild)


def test_refuses_unequal_storage(host, rng):
    """What one kernel reads by one storage must have it, or no kernel would be right."""
    arena = Arena(host)
    sizes = {"hidden": 64, "experts": 5, "slots": 2, "width": 32, "shared_width": 96}
    layer = make_experts(rng, (("q8", 32), ("q8", 32), ("q8", 32)), **sizes)
    other = make_experts(rng, (("q4", 32), ("q4", 32), ("bf16", 0)), **sizes)
    matrices = {name: arena.matrix(weight) for name, weight in layer.weights.items()}
    logits, shared_act = arena.output(1, 6), arena.output(1, 96)
    x, gain = arena.output(1, 64), arena.output(64)
    for name, twin in (("shared_router", "router"), ("up", "gate"), ("shared_up", "shared_gate")):
        moe = native.MoeWeights(
            **matrices | {name: arena.matrix(other.weights[name])}, slots=sizes["slots"]
        )
        valid = {"logits": logits, "shared_act": shared_act, "x": x, "gain": gain}
        message = f"{name} is .*, expected q8 in groups of 32 as {twin}"
        assert_refused(native.moe_router, valid | {"eps": EPS, "moe": moe}, message)
