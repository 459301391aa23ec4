"""rope: norm and rotation of q and k at prefill, and the append to the cache."""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference
from kernels.arena import Arena, floats
from kernels.compare import BF16_ROUNDING, assert_close, assert_same_bits
from kernels.layers import Attention, make_attention
from kernels.refusals import assert_refused
from kernels.weights import from_bf16

# float32: a norm of up to 256 terms, then sine and cosine of a float32 angle, each good to a few
# roundings (6e-8).
TOLERANCE = 2e-6

# q_heads, kv_heads, head_dim, rotary_dims
SHAPES = [(2, 1, 32, 32), (6, 3, 64, 16), (4, 2, 96, 24), (3, 3, 34, 2), (4, 1, 256, 64)]


def run(
    device: native.Device, layer: Attention, proj: np.ndarray, position: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, and both caches as float32."""
    arena = Arena(device)
    caches = [
        arena.inout(cache, "bf16" if layer.cache_dtype == "bf16" else None)
        for cache in (layer.k_cache, layer.v_cache)
    ]
    q = arena.output(len(proj), layer.q_heads, layer.head_dim)
    tensors = layer.with_caches(arena, arena.input(proj), caches)
    arena.run(native.rope_append, q, tensors, position)
    return q.numpy(), floats(caches[0]), floats(caches[1])


def expected(
    layer: Attention, proj: np.ndarray, position: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q [T, Q, D], and what is appended to k and v [G, T, D]."""
    queries, _, keys, values = reference.split_attention(
        proj, layer.q_heads, layer.kv_heads, layer.head_dim
    )
    at = position + np.arange(len(proj))
    q = reference.rotate(reference.rms_norm(queries, layer.q_gain, layer.eps), at, layer.inv_freq)
    k = reference.rotate(reference.rms_norm(keys, layer.k_gain, layer.eps), at, layer.inv_freq)
    return q, k.swapaxes(0, 1), values.swapaxes(0, 1)


def assert_appended(got: np.ndarray, want: np.ndarray, dtype: str, tolerance: float) -> None:
    """Appended rows, to the precision of the cache."""
    if dtype == "bf16":
        # One rounding to bf16, and a value that float32 errors moved over the edge of it.
        bound = np.abs(want) * (BF16_ROUNDING + 1e-5) + 1e-6
        assert_close(got, want, tolerance=1.0, magnitude=bound, nmse=BF16_ROUNDING**2)
    else:
        assert_close(got, want, tolerance=tolerance)


@pytest.mark.parametrize("cache_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 33])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows(device, rng, shape, tokens, cache_dtype):
    """Norm, rotation and append at an odd position; all else in the cache stays."""
    position = 5
    layer = make_attention(rng, *shape, position=position, capacity=41, cache_dtype=cache_dtype)
    proj = layer.rows(rng, tokens)
    q, k_cache, v_cache = run(device, layer, proj, position)
    want_q, want_k, want_v = expected(layer, proj, position)
    assert_close(q, want_q, tolerance=TOLERANCE)
    new = slice(position, position + tokens)
    assert_appended(k_cache[:, new], want_k, cache_dtype, TOLERANCE)
    assert_appended(v_cache[:, new], want_v, cache_dtype, 0)
    for after, before in ((k_cache, layer.k_cache), (v_cache, layer.v_cache)):
        assert np.isnan(after[:, position + tokens :]).all()
        kept = from_bf16(before) if cache_dtype == "bf16" else before
        np.testing.assert_array_equal(after[:, :position], kept[:, :position])


@pytest.mark.parametrize("position", [0, 1001, 200_003, 262_100])
def test_positions(device, rng, position):
    """Angles far beyond one turn; transformers rounds them to float32, and so does Lily."""
    layer = make_attention(rng, 2, 1, 64, 32, position=0, capacity=1, cache_dtype="bf16")
    layer.capacity = position + 3
    empty = np.zeros((1, layer.capacity, 64), np.uint16)
    layer.k_cache, layer.v_cache = empty, empty
    proj = layer.rows(rng, 3)
    q, k_cache, _ = run(device, layer, proj, position)
    want_q, want_k, _ = expected(layer, proj, position)
    assert_close(q, want_q, tolerance=TOLERANCE)
    assert_appended(k_cache[:, position:], want_k, "bf16", TOLERANCE)


@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_magnitudes(device, rng, scale):
    """The norm takes the size away, unless eps is larger."""
    layer = make_attention(rng, 2, 1, 96, 24, position=0, capacity=2, cache_dtype="bf16")
    proj = layer.rows(rng, 2) * np.float32(scale)
    q, _, _ = run(device, layer, proj, 0)
    assert_close(q, expected(layer, proj, 0)[0], tolerance=TOLERANCE)


def test_thread_counts_agree(thread_counts, rng):
    """A head does not depend on who computed it."""
    layer = make_attention(rng, 6, 3, 64, 16, position=3, capacity=40, cache_dtype="bf16")
    proj = layer.rows(rng, 33)
    results = [run(device, layer, proj, 3) for device in thread_counts]
    assert_same_bits([dict(zip("qkv", result, strict=True)) for result in results])


def test_refusals(host, rng):
    """Each wrong tensor and extent is named."""
    arena = Arena(host)
    heads = {"q_heads": 4, "kv_heads": 2, "head_dim": 32, "rotary_dims": 16, "eps": 1e-6}
    tensors = {
        "proj": arena.output(3, 384),
        "q_gain": arena.output(32),
        "k_gain": arena.output(32),
        "inv_freq": arena.output(8),
        "k_cache": arena.output(2, 9, 32),
        "v_cache": arena.output(2, 9, 32),
    }
    valid = {**tensors, **heads, "q": arena.output(3, 4, 32), "position": 6}

    def rebuild(given):
        layer = {name: given[name] for name in (*tensors, *heads)}
        return {
            "q": given["q"],
            "layer": native.AttentionTensors(**layer),
            "position": given["position"],
        }

    def refused(message, **changes):
        assert_refused(native.rope_append, valid | changes, message, rebuild)

    assert_refused(native.rope_append, valid, tensors | {"q": valid["q"]}, rebuild)
    refused("rows 7 to 10 leave k_cache, which has 9", position=7)
    refused("v_cache is bf16, expected f32", v_cache=arena.output(2, 9, 32, dtype="bf16"))
    refused("q_heads is 4, expected a multiple of kv_heads", kv_heads=3)
    refused("head_dim is 31", head_dim=31)
    refused("head_dim is 258", head_dim=258)
    refused("rotary_dims is 34", rotary_dims=34)
    refused("rotary_dims is 15", rotary_dims=15)
    refused("kv_heads is 0", kv_heads=0)
