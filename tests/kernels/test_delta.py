"""delta: causal convolution, gates and the gated delta rule, one token or a chunk at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference
from kernels.arena import Arena, floats
from kernels.compare import BF16_ROUNDING, assert_close, assert_same_bits, rounding_nmse
from kernels.layers import Delta, cursor_at, make_delta
from kernels.refusals import assert_refused

# float32 recurrences over up to 130 tokens: the rule contracts the state (beta < 1, |k| = 1), so
# errors of a few 1e-7 a step do not pile up; RMSNorm then divides by outputs that can be small.
TOLERANCE = 2e-5

# Matrix units take a factor as two bfloats, which keep it to 2^-18, and leave out the product of
# the low parts, as much again: 3 * 2^-18 of a product, and three follow each other (state times
# key, the triangular solve, correction times key).
SPLIT_TOLERANCE = 9 * 2.0**-18

# key_heads, value_heads, key_dim, value_dim
SHAPES = [(1, 1, 32, 32), (2, 4, 64, 96), (3, 3, 33, 31), (2, 6, 96, 64), (1, 2, 256, 40),
          (2, 2, 16, 256), (1, 3, 128, 128)]  # fmt: skip

Result = dict[str, np.ndarray]


def run_chunk(device: native.Device, layer: Delta, proj: np.ndarray, position: int) -> Result:
    """Prefill of one chunk."""
    arena = Arena(device)
    memory = layer.memory_on(arena)
    tensors = layer.on(arena, proj, memory)
    qkv = arena.output(len(proj), layer.channels)
    gates = arena.output(len(proj), 2, layer.value_heads)
    y = arena.activation_output(len(proj), layer.value_heads * layer.value_dim)
    step = arena.step()
    native.delta_conv(step, qkv, gates, tensors, position)
    native.delta_chunk(step, y, qkv, gates, tensors)
    arena.run_step(step)
    return {
        "qk": qkv.numpy()[:, : 2 * layer.key_heads * layer.key_dim],
        "gates": gates.numpy(),
        "y": floats(y),
        "ring": memory[0].numpy(),
        "state": memory[1].numpy(),
    }


def run_steps(device: native.Device, layer: Delta, proj: np.ndarray, position: int) -> Result:
    """Decode of the same tokens, one by one."""
    arena = Arena(device)
    ring, state = layer.memory_on(arena)
    next_state = arena.output(*layer.state.shape)
    rows = []
    for t, row in enumerate(proj):
        y = arena.output(1, layer.value_heads * layer.value_dim)
        cursor = arena.input(np.frombuffer(cursor_at(position + t).tobytes(), np.uint8))
        before = state.numpy().tobytes()
        place = layer.on(arena, row[None], (ring, state))
        arena.run(native.delta_step, y, next_state, place, cursor)
        assert state.numpy().tobytes() == before, "a step changed the state that it reads"
        state, next_state = next_state, state
        rows.append(y.numpy())
    return {"y": np.concatenate(rows), "ring": ring.numpy(), "state": state.numpy()}


def expected(layer: Delta, proj: np.ndarray, position: int) -> Result:
    """The layer in float64: all that the kernels write."""
    tokens, wide = len(proj), reference.f64(proj)
    inputs, z, b, a = np.split(
        wide,
        np.cumsum([layer.channels, layer.value_heads * layer.value_dim, layer.value_heads]),
        axis=1,
    )
    history = reference.f64([layer.conv_ring[(position - back) % 4] for back in (3, 2, 1)])
    mixed = reference.causal_conv(inputs, history, layer.conv_weight)
    key_width = layer.key_heads * layer.key_dim
    heads = (tokens, layer.key_heads, layer.key_dim)
    q, k, v = np.split(mixed, [key_width, 2 * key_width], axis=1)
    q = reference.l2_norm(q.reshape(heads)) / np.sqrt(layer.key_dim)
    k = reference.l2_norm(k.reshape(heads))
    v = v.reshape(tokens, layer.value_heads, layer.value_dim)
    decay = np.exp(layer.decay_rate * reference.softplus(a + layer.dt_bias))
    beta = reference.sigmoid(b)
    outputs, states = [], []
    for head in range(layer.value_heads):
        shared = head // (layer.value_heads // layer.key_heads)
        output, state = reference.delta_rule(
            q[:, shared],
            k[:, shared],
            v[:, head],
            decay[:, head],
            beta[:, head],
            reference.f64(layer.state[head]),
        )
        outputs.append(output)
        states.append(state)
    normed = reference.rms_norm(np.stack(outputs, axis=1), layer.gain, layer.eps)
    y = normed.reshape(tokens, -1) * reference.silu(z)
    ring = layer.conv_ring.copy()
    for t in range(tokens):
        ring[(position + t) % 4] = proj[t, : layer.channels]
    flat = [part.reshape(tokens, -1) for part in (q, k)]
    return {
        "qk": np.concatenate(flat, axis=1),
        "gates": np.stack([decay, beta], axis=1),
        "y": y,
        "ring": ring,
        "state": np.stack(states),
    }


def gpu_takes(shape: tuple[int, ...]) -> bool:
    """Keys that the GPU kernels are made for."""
    return shape[2] in (16, 32, 64, 128, 256)


def tolerance_of(device: native.Device) -> float:
    """Of states and outputs: NVIDIA's tiles take a chunk by matrix units."""
    by_matrices = device.name == "cuda" or Arena.tiles == "nvidia"
    return TOLERANCE + (SPLIT_TOLERANCE if by_matrices else 0.0)


def assert_y(device: native.Device, got: np.ndarray, want: np.ndarray) -> None:
    """Outputs of a chunk, rounded to the device's type of activations."""
    rounding = 0.0 if device.activation_dtype == "f32" else BF16_ROUNDING
    assert_close(got, want, tolerance=tolerance_of(device) + rounding, nmse=rounding_nmse(device))


def assert_layer(device: native.Device, got: Result, want: Result) -> None:
    """Every result that the kernels gave; the ring exactly, for it is a copy."""
    np.testing.assert_array_equal(got["ring"], want["ring"])
    for name in got.keys() - {"ring", "y"}:
        assert_close(got[name], want[name], tolerance=tolerance_of(device))
    assert_y(device, got["y"], want["y"])


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 33])
@pytest.mark.parametrize("shape", SHAPES)
def test_chunk(device, rng, shape, tokens):
    """Prefill from a memory that is not empty, at every phase of the ring."""
    layer = make_delta(rng, *shape)
    for position in (4, 5, 1002, 1003):
        proj = layer.rows(rng, tokens)
        got = run_chunk(device, layer, proj, position)
        assert_layer(device, got, expected(layer, proj, position))


@pytest.mark.parametrize("shape", SHAPES)
def test_long_chunk(device, rng, shape):
    """Across the sub-chunks that an implementation may cut."""
    layer = make_delta(rng, *shape)
    proj = layer.rows(rng, 130)
    assert_layer(device, run_chunk(device, layer, proj, 7), expected(layer, proj, 7))


@pytest.mark.parametrize("shape", SHAPES)
def test_step(device, rng, shape):
    """Decode of one token, at every phase of the ring."""
    layer = make_delta(rng, *shape)
    for position in (4, 5, 1002, 1003):
        proj = layer.rows(rng, 1)
        assert_layer(
            device, run_steps(device, layer, proj, position), expected(layer, proj, position)
        )


def test_first_tokens(device, rng):
    """A new session: zeros before the first token."""
    layer = make_delta(rng, 2, 4, 64, 96)
    layer = replace(layer, conv_ring=0 * layer.conv_ring, state=0 * layer.state)
    proj = layer.rows(rng, 3)
    want = expected(layer, proj, 0)
    assert_layer(device, run_chunk(device, layer, proj, 0), want)
    assert_layer(device, run_steps(device, layer, proj, 0), want)


@pytest.mark.parametrize("shape", [(2, 4, 64, 96), (3, 3, 33, 31), (1, 2, 128, 128)])
def test_chunk_equals_steps(device, rng, shape):
    """A chunk gives what its tokens give one by one."""
    layer = make_delta(rng, *shape)
    proj = layer.rows(rng, 37)
    chunk, steps = run_chunk(device, layer, proj, 3), run_steps(device, layer, proj, 3)
    np.testing.assert_array_equal(chunk["ring"], steps["ring"])
    assert_y(device, chunk["y"], steps["y"])
    assert_close(chunk["state"], steps["state"], tolerance=tolerance_of(device))


@pytest.mark.parametrize("cuts", [(1, 2), (3, 10, 41), (64,), (5, 69)])
def test_chunks_equal_whole(device, rng, cuts):
    """Ring and state carry a prompt over any cut."""
    layer = make_delta(rng, 2, 4, 64, 96)
    proj = layer.rows(rng, 73)
    whole = run_chunk(device, layer, proj, 2)
    rows, part, position = [], layer, 2
    for piece in np.split(proj, cuts):
        got = run_chunk(device, part, piece, position)
        part = replace(part, conv_ring=got["ring"], state=got["state"])
        position += len(piece)
        rows.append(got["y"])
    np.testing.assert_array_equal(part.conv_ring, whole["ring"])
    assert_y(device, np.concatenate(rows), whole["y"])
    assert_close(part.state, whole["state"], tolerance=tolerance_of(device))


def test_extreme_gates(device, rng):
    """softplus and sigmoid far from zero: no memory, all memory, and never NaN."""
    layer = make_delta(rng, 1, 4, 32, 32)
    proj = layer.rows(rng, 9)
    gates = proj[:, -2 * layer.value_heads :]
    gates[:] = rng.choice([-90.0, -30.0, 0.0, 30.0, 90.0], gates.shape)
    want = expected(layer, proj, 6)
    assert_layer(device, run_chunk(device, layer, proj, 6), want)
    assert_layer(device, run_steps(device, layer, proj, 6), want)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_magnitudes(device, rng, scale):
    """Small rows meet the eps of the L2 norm, large ones saturate SiLU."""
    layer = make_delta(rng, 2, 4, 64, 96)
    proj = layer.rows(rng, 5)
    proj[:, : layer.channels] *= np.float32(scale)
    want = expected(layer, proj, 9)
    assert_layer(device, run_chunk(device, layer, proj, 9), want)
    assert_layer(device, run_steps(device, layer, proj, 9), want)


def test_eps_belongs_to_the_gated_norm(device, rng):
    """The L2 norm keeps its own 1e-6 whatever config.json says about RMSNorm."""
    layer = replace(make_delta(rng, 2, 4, 64, 96), eps=0.01)
    proj = layer.rows(rng, 5)
    proj[:, : layer.channels] *= np.float32(1e-2)
    want = expected(layer, proj, 9)
    assert_layer(device, run_chunk(device, layer, proj, 9), want)
    assert_layer(device, run_steps(device, layer, proj, 9), want)


def test_thread_counts_agree(thread_counts, rng):
    """A head does not depend on who computed it."""
    layer = make_delta(rng, 3, 6, 64, 96)
    proj = layer.rows(rng, 33)
    assert_same_bits([run_chunk(device, layer, proj, 5) for device in thread_counts])
    assert_same_bits([run_steps(device, layer, proj[:5], 5) for device in thread_counts])


def test_refusals(host):
    """Each wrong tensor and extent is named."""
    arena = Arena(host)
    heads = {"key_heads": 2, "value_heads": 4, "key_dim": 8, "value_dim": 16, "eps": 1e-6}
    channels, width = 2 * 2 * 8 + 4 * 16, 4 * 16

    def check(operation, tokens, own, others=None):
        members = {
            "proj": arena.output(tokens, channels + width + 8),
            "conv_weight": arena.output(channels, 4),
            "conv_ring": arena.output(4, channels),
            "decay_rate": arena.output(4),
            "dt_bias": arena.output(4),
            "gain": arena.output(16),
            "state": arena.output(4, 16, 8),
        }

        def rebuild(given):
            layer = native.DeltaTensors(**{name: given[name] for name in (*members, *heads)})
            return {name: given[name] for name in (*own, *(others or {}))} | {"layer": layer}

        valid = {**members, **heads, **own, **(others or {})}
        assert_refused(operation, valid, members | own, rebuild)
        for message, changes in (
            ("value_heads is 4, expected a multiple of key_heads", {"key_heads": 3}),
            ("key_dim is 257", {"key_dim": 257}),
            ("value_dim 300", {"value_dim": 300}),
            ("eps is", {"eps": float("inf")}),
        ):
            assert_refused(operation, valid | changes, message, rebuild)
        if tokens == 1:
            wrong = valid | {"proj": arena.output(2, channels + width + 8)}
            assert_refused(operation, wrong, "proj has 2 rows, expected 1", rebuild)

    between = {"qkv": arena.output(3, channels), "gates": arena.output(3, 2, 4)}
    cursor = arena.record(cursor_at(3))
    outputs = {"y": arena.output(1, width), "next_state": arena.output(4, 16, 8)}
    check(native.delta_step, 1, outputs | {"cursor": cursor})
    check(native.delta_conv, 3, between, {"position": 5})
    check(native.delta_chunk, 3, between | {"y": arena.output(3, width)})
