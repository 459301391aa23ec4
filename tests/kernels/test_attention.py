"""attention: many rows at prefill, one row in parts of the context at decode."""

from __future__ import annotations

import numpy as np
import pytest
from lily._native import kernels as native

from kernels import reference
from kernels.arena import Arena, as_activation, floats
from kernels.compare import BF16_ROUNDING, assert_close, assert_same_bits
from kernels.layers import Attention, cursor_at, make_attention
from kernels.refusals import assert_refused
from kernels.test_rope import SHAPES, assert_appended, expected
from kernels.weights import from_bf16, to_bf16

MAX_SPLITS = native.ATTENTION_MAX_SPLITS

# float32 scores of up to 256 terms of size 1, and exp of them: a score is off by at most
# sum_tolerance(256) * 4 * sqrt(D) * |q||k| / D, near 5e-6, and so is every weight.
TOLERANCE = 2e-5


def gpu_takes(shape: tuple[int, ...]) -> bool:
    """Head dimensions that the GPU kernels are made for."""
    return shape[2] in (64, 128, 256)


def assert_mixed(device, got, want, factor=1.0):
    """Attention's result, against the largest element.

    Matrix units take queries and weights in bf16: a score of size s is off by up to
    BF16_ROUNDING * s (a few units of `factor`), and so is its weight; weights and results are
    rounded once more.
    """
    if device.activation_dtype == "f32":
        assert_close(got, want, tolerance=TOLERANCE * factor)
    else:
        tolerance = (1 + factor) * BF16_ROUNDING
        assert_close(got, want, tolerance=tolerance, nmse=tolerance**2)


def run_prefill(
    device: native.Device, layer: Attention, q: np.ndarray, proj: np.ndarray, position: int
) -> np.ndarray:
    """Attention rows over a cache that holds their own keys and values already."""
    arena = Arena(device)
    y = arena.activation_output(len(q), layer.q_heads * layer.head_dim)
    tensors = layer.on(arena, proj)
    arena.run(native.attention_prefill, y, arena.activation(q), tensors, position)
    return floats(y)


def merge_on_host(partial: np.ndarray, gates: np.ndarray) -> np.ndarray:
    """What attention_merge makes of the parts [heads, parts, D + 2]: values, maximum, total.

    Parts that nobody wrote are still poison.
    """
    parts = reference.f64(partial[:, np.isfinite(partial[0, :, -2])])
    weights = np.exp(parts[:, :, -2] - parts[:, :, -2].max(1, keepdims=True))
    values = np.einsum("hp,hpd->hd", weights, parts[:, :, :-2])
    totals = (weights * parts[:, :, -1]).sum(1, keepdims=True)
    return (values / totals).reshape(1, -1) * reference.sigmoid(gates.reshape(1, -1))


def run_decode(
    device: native.Device, layer: Attention, proj: np.ndarray, position: int, *, merges: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y of one token, and the caches after it, as float32; its parts merged there or here."""
    arena = Arena(device)
    caches = [
        arena.inout(cache, "bf16" if layer.cache_dtype == "bf16" else None)
        for cache in (layer.k_cache, layer.v_cache)
    ]
    tensors = layer.with_caches(arena, arena.input(proj), caches)
    cursor = arena.input(np.frombuffer(cursor_at(position).tobytes(), np.uint8))
    partial = arena.output(layer.q_heads, MAX_SPLITS, layer.head_dim + 2)
    y = arena.output(1, layer.q_heads * layer.head_dim)
    step = arena.step()
    native.attention_decode(step, partial, tensors, cursor)
    if merges:
        native.attention_merge(step, y, partial, tensors, cursor)
    arena.run_step(step)
    if merges:
        return y.numpy(), floats(caches[0]), floats(caches[1])
    _, gates, _, _ = reference.split_attention(proj, layer.q_heads, layer.kv_heads, layer.head_dim)
    merged = merge_on_host(partial.numpy(), gates)
    return merged, floats(caches[0]), floats(caches[1])


def filled(rng: np.random.Generator, shape, cache_dtype: str, position: int, tokens: int):
    """A layer whose cache holds the rows of the chunk too, and NaN past them."""
    end = position + tokens
    return make_attention(rng, *shape, position=end, capacity=end + 5, cache_dtype=cache_dtype)


def as_floats(cache: np.ndarray, dtype: str) -> np.ndarray:
    """A host cache as float64."""
    return reference.f64(from_bf16(cache) if dtype == "bf16" else cache)


def assert_prefill(device, rng, layer, tokens, position):
    """Against softmax(q k^T / sqrt(D)) v * sigmoid(gate)."""
    proj = layer.rows(rng, tokens)
    shape = (tokens, layer.q_heads, layer.head_dim)
    q = rng.standard_normal(shape).astype(np.float32) * np.float32(1.5)
    _, gates, _, _ = reference.split_attention(proj, layer.q_heads, layer.kv_heads, layer.head_dim)
    keys, values = (as_floats(c, layer.cache_dtype) for c in (layer.k_cache, layer.v_cache))
    seen = reference.f64(as_activation(device, q))
    want = reference.attend(seen, keys, values, gates, position)
    assert_mixed(device, run_prefill(device, layer, q, proj, position), want)


@pytest.mark.parametrize("cache_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 33])
@pytest.mark.parametrize("shape", SHAPES)
def test_prefill(device, rng, shape, tokens, cache_dtype):
    """Chunks that start at 0 and at odd positions."""
    for position in (0, 5, 67):
        layer = filled(rng, shape, cache_dtype, position, tokens)
        assert_prefill(device, rng, layer, tokens, position)


@pytest.mark.parametrize(("tokens", "position"), [(130, 0), (130, 259), (1, 1000), (33, 1023)])
def test_prefill_long(device, rng, tokens, position):
    """Many tiles of rows and of context."""
    for shape in ((4, 2, 64, 24), (6, 1, 128, 32)):
        layer = filled(rng, shape, "bf16", position, tokens)
        assert_prefill(device, rng, layer, tokens, position)


@pytest.mark.parametrize("cache_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("position", [0, 1, 30, 254, 255, 256, 257, 999, 1000])
@pytest.mark.parametrize("shape", SHAPES)
def test_decode(device, rng, shape, position, cache_dtype):
    """Contexts below, at and beyond one part; the new token's own row is appended and seen."""
    assert_decode(device, rng, shape, position, cache_dtype)


@pytest.mark.parametrize("position", [16_383, 16_384, 20_011])
def test_decode_with_all_parts(device, rng, position):
    """Contexts that fill every part, and longer ones."""
    for shape in ((2, 1, 64, 32), (4, 1, 128, 32)):
        assert_decode(device, rng, shape, position, "bf16")


def assert_decode(device, rng, shape, position, cache_dtype, *, merges=True):
    """y and the appended rows of one decode step."""
    layer = make_attention(
        rng, *shape, position=position, capacity=position + 7, cache_dtype=cache_dtype
    )
    proj = layer.rows(rng, 1)
    y, k_cache, v_cache = run_decode(device, layer, proj, position, merges=merges)
    want_q, want_k, want_v = expected(layer, proj, position)
    here = slice(position, position + 1)
    assert_appended(k_cache[:, here], want_k, cache_dtype, TOLERANCE)
    assert_appended(v_cache[:, here], want_v, cache_dtype, 0)
    assert np.isnan(k_cache[:, position + 1 :]).all()
    assert np.isnan(v_cache[:, position + 1 :]).all()
    _, gates, _, _ = reference.split_attention(proj, layer.q_heads, layer.kv_heads, layer.head_dim)
    # What the cache holds after the step is what was attended to: a rounding of the new key to
    # the neighbouring bf16 is judged above and not once more here.
    want = reference.attend(want_q, reference.f64(k_cache), reference.f64(v_cache), gates, position)
    assert_mixed(device, y, want)


@pytest.mark.parametrize("factor", [0.01, 30.0])
def test_sharp_and_flat_softmax(device, rng, factor):
    """Scores of a few hundred overflow exp without the maximum; tiny ones give a mean."""
    layer = make_attention(rng, 4, 2, 64, 16, position=300, capacity=310, cache_dtype="bf16")
    layer.q_gain = layer.q_gain * np.float32(factor)
    proj = layer.rows(rng, 1)
    y, k_cache, v_cache = run_decode(device, layer, proj, 300)
    want_q, _, _ = expected(layer, proj, 300)
    _, gates, _, _ = reference.split_attention(proj, 4, 2, 64)
    want = reference.attend(want_q, reference.f64(k_cache), reference.f64(v_cache), gates, 300)
    # A score of size `factor * 8` carries a relative rounding error into the exponent.
    assert_mixed(device, y, want, max(factor, 1))


@pytest.mark.parametrize("cache_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("position", [0, 3, 250])
def test_prefill_equals_decode(device, rng, position, cache_dtype):
    """rope_append and attention_prefill of a chunk give what its decode steps give."""
    tokens = 11
    layer = make_attention(
        rng, 4, 2, 64, 16, position=position, capacity=position + tokens, cache_dtype=cache_dtype
    )
    proj = layer.rows(rng, tokens)
    arena = Arena(device)
    tensors = layer.on(arena, proj)
    q = arena.activation_output(tokens, 4, 64)
    y = arena.activation_output(tokens, 4 * 64)
    step = arena.step()
    native.rope_append(step, q, tensors, position)
    native.attention_prefill(step, y, q, tensors, position)
    arena.run_step(step)

    single = []
    for t in range(tokens):
        row, k_cache, v_cache = run_decode(device, layer, proj[t : t + 1], position + t)
        single.append(row)
        layer.k_cache, layer.v_cache = _as_stored(k_cache, layer), _as_stored(v_cache, layer)
    assert_mixed(device, floats(y), np.concatenate(single))


def _as_stored(cache: np.ndarray, layer: Attention) -> np.ndarray:
    return to_bf16(cache) if layer.cache_dtype == "bf16" else cache


def test_thread_counts_agree(thread_counts, rng):
    """Neither a row nor the cut of a context depends on the number of threads."""
    chunk = filled(rng, (6, 3, 64, 16), "bf16", 70, 33)
    proj, q = chunk.rows(rng, 33), rng.standard_normal((33, 6, 64)).astype(np.float32)
    single = make_attention(rng, 6, 3, 64, 16, position=1000, capacity=1001, cache_dtype="bf16")
    row = single.rows(rng, 1)
    assert_same_bits(
        [
            {
                "prefill": run_prefill(device, chunk, q, proj, 70),
                "decode": run_decode(device, single, row, 1000)[0],
            }
            for device in thread_counts
        ]
    )


def test_refusals(host):
    """Each wrong tensor is named."""
    arena = Arena(host)
    heads = {"q_heads": 4, "kv_heads": 2, "head_dim": 32, "rotary_dims": 16, "eps": 1e-6}

    def layer_tensors(tokens):
        return {
            "proj": arena.output(tokens, 384),
            "q_gain": arena.output(32),
            "k_gain": arena.output(32),
            "inv_freq": arena.output(8),
            "k_cache": arena.output(2, 9, 32),
            "v_cache": arena.output(2, 9, 32),
        }

    def check(operation, tokens, own, others=None):
        members = layer_tensors(tokens)

        def rebuild(given):
            layer = native.AttentionTensors(**{name: given[name] for name in members}, **heads)
            return {name: given[name] for name in (*own, *(others or {}))} | {"layer": layer}

        valid = {**members, **own, **(others or {})}
        assert_refused(operation, valid, members | own, rebuild)
        if tokens == 1:
            wrong = valid | {"proj": arena.output(2, 384)}
            assert_refused(operation, wrong, "proj has 2 rows, expected 1", rebuild)

    q, cursor = arena.output(3, 4, 32), arena.record(cursor_at(3))
    check(native.attention_prefill, 3, {"q": q, "y": arena.output(3, 128)}, {"position": 2})
    partial = arena.output(4, MAX_SPLITS, 34)
    check(native.attention_decode, 1, {"partial": partial, "cursor": cursor})
    check(
        native.attention_merge,
        1,
        {"y": arena.output(1, 128), "partial": partial, "cursor": cursor},
    )
