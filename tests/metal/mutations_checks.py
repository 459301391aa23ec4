"""Compact checks of the kernels of one metal/*.metal file, for the mutation test.

Each is a few cases of tests/kernels on the device "fibers", under several orders of simdgroups.
As a module (python -m metal.mutations_checks NAME) it runs one and fails with its exception; the
kernels named here are all that the module under test then has.
"""

from __future__ import annotations

import sys

import numpy as np

from metal import mutations_tensor  # noqa: F401  (it enters its own check)
from metal.mutations_registry import CHECKS, SEEDS, check

# --- rows -------------------------------------------------------------------------------------


@check("norm.metal", "norm_rms_bf16")
def norm(device, rng):
    """Rows around the width of a threadgroup."""
    from kernels import test_norm

    for hidden in (33, 300):
        test_norm.test_rows(device, rng, 2, hidden)
    test_norm.test_eps(device, rng, 0.25)


@check("encoder.metal", "encoder_norm_bf16")
def encoder_norm(device, rng):
    """Rows around the width of a threadgroup."""
    from kernels import test_encoder

    for width in (33, 517):
        test_encoder.test_norm(device, rng, width, 100.0)


@check("encoder.metal", "encoder_embed_bf16")
def encoder_embed(device, rng):
    """Places and forms of every row."""
    from kernels import test_encoder

    test_encoder.test_embed(device, rng, 100)


@check("encoder.metal", "encoder_attention_bf16")
def encoder_attention(device, rng):
    """Windows around a block of keys, the last at the end of memory."""
    from kernels import test_encoder

    for lengths in ([33, 1, 32], [5, 64, 31]):
        test_encoder.test_attention(device, rng, lengths, 3)


@check("encoder.metal", "encoder_gelu_bf16")
def encoder_gelu(device, rng):
    """Both sides."""
    from kernels import test_encoder

    test_encoder.test_gelu(device, rng, 100)


@check("encoder.metal", "encoder_pool_bf16")
def encoder_pool(device, rng):
    """Windows of one row and of many."""
    from kernels import test_encoder

    test_encoder.test_pool(device, rng, 33)


@check("embed.metal", "embed_rows_q4", "embed_rows_q8", "embed_rows_bf16")
def embed(device, rng):
    """Every way in which a weight is read alone."""
    from kernels import test_embed

    for storage, group in (("q4", 32), ("q8", 64), ("bf16", 0)):
        test_embed.test_rows(device, rng, storage, group, 3)


@check("embed.metal", "embed_rows_f32")
def embed_far(device, rng):
    """A row more than 2**32 bytes into its table, of which a few pages are real."""
    from lily._native import kernels as native

    rows, cols = 2**20 + 3, 1024
    # The CPU device maps what it allocates, and the fibers take any memory that the host reaches.
    table = native.Device("cpu", threads=1).zeros([rows * cols], "f32")
    row = rng.standard_normal(cols).astype(np.float32)
    table.part((rows - 1) * cols, [cols]).write(row)
    hidden, ids = device.zeros([1, cols], "f32"), device.tensor(np.array([rows - 1], np.uint32))
    step = native.Step(device)
    native.embed_rows(step, hidden, ids, native.Matrix("f32", table, rows=rows, cols=cols))
    device.run(step)
    np.testing.assert_array_equal(hidden.numpy()[0], row)


@check("rope.metal", "rope_append_bf16_bf16", "rope_append_bf16")
def rope(device, rng):
    """Shared kv heads, and fewer heads than a threadgroup has simdgroups."""
    from kernels import test_rope

    test_rope.test_rows(device, rng, (6, 3, 64, 16), 3, "bf16")
    test_rope.test_rows(device, rng, (4, 1, 256, 64), 2, "bf16")


# --- linear -----------------------------------------------------------------------------------


@check(
    "linear.metal",
    *("linear_gemv_q4_r4s1", "linear_gemv_q8_r4s1", "linear_gemv_norm_q4_r4s1"),
    *("linear_gemv_add_q4_r4s1", "linear_gemv_bf16_r4s1"),
)
def gemv(device, rng):
    """One row: alone, in segments, added, with the norm folded in."""
    from kernels import test_linear

    for storage, group in (("q4", 64), ("q8", 32), ("bf16", 0)):
        test_linear.test_products(device, rng, storage, group, 1)
    test_linear.test_segments_of_one_storage(device, rng, "q4", 64, 1)
    test_linear.test_norm_folded(device, rng, "q4", 64, 1.0)
    test_linear.test_add(device, rng, "q4", 64, 1)


@check("linear.metal", "linear_gemv_q4_r4s4", "linear_gemv_norm_q4_r4s4")
def gemv_split(device, rng):
    """Columns split over simdgroups, and more of them than are staged at once."""
    from kernels import test_linear
    from kernels.weights import make_weight

    for cols in (4160, 8192):
        weight = make_weight(rng, "q4", 64, (11, cols), scale=0.5)
        x, gain = test_linear.rows_of(rng, 1, cols), np.ones(cols, np.float32)
        test_linear.assert_product(device, test_linear.run(device, x, [weight]), x, [weight])
        normed = test_linear.reference.rms_norm(x, gain, test_linear.EPS)
        got = test_linear.run_norm(device, x, gain, [weight])
        test_linear.assert_product(device, got, normed, [weight], cols)


@check(
    "linear_gemm.metal",
    *("linear_gemm_q4_bf16_t32", "linear_gemm_q4_bf16_t64", "linear_gemm_bf16_bf16_t32"),
    "linear_gemm_add_q4_bf16_t32",
)
def gemm(device, rng):
    """Many rows: both tiles, segments, rows that end inside a tile."""
    from kernels import test_linear

    for tokens in (17, 33):
        test_linear.test_products(device, rng, "q4", 64, tokens)
    test_linear.test_products(device, rng, "bf16", 0, 17)
    test_linear.test_segments_of_one_storage(device, rng, "q4", 32, 17)
    test_linear.test_add(device, rng, "q4", 64, 17)


@check(
    "linear_gemm_lanes.metal",
    *("linear_gemm_q4_bf16_lanes16", "linear_gemm_q4_bf16_lanes32"),
    *("linear_gemm_add_q4_bf16_lanes16", "linear_gemm_add_q4_bf16_lanes32"),
)
def gemm_lanes(device, rng):
    """Tiles of which rows are missing, and more steps than have room."""
    from kernels import test_prefill_lanes

    nvidia_tiles()
    test_prefill_lanes.test_products(device, rng, "q4", 64, 9, 130, 768)
    test_prefill_lanes.test_products(device, rng, "q4", 32, 21, 6, 128)


@check("attention_prefill_lanes.metal", "attention_prefill_bf16_bf16_d64_lanes")
def attention_prefill_lanes(device, rng):
    """Blocks that all rows see, that some do, and the last in part."""
    from kernels import test_prefill_lanes

    nvidia_tiles()
    for tokens, position in ((1, 0), (33, 5), (20, 67)):
        test_prefill_lanes.test_causal_attention(device, rng, (3, 1, 64, 24), tokens, position)


@check(
    "linear_few.metal",
    *("linear_gemm_q4_bf16_m2", "linear_gemm_q4_bf16_m4", "linear_gemm_q4_bf16_m8"),
    *("linear_gemm_bf16_bf16_m8", "linear_gemm_add_q4_bf16_m8"),
)
def few(device, rng):
    """Two to eight rows, and more columns than are staged at once."""
    from kernels import test_linear
    from kernels.weights import make_weight

    for tokens in (2, 3, 7):
        test_linear.test_products(device, rng, "q4", 64, tokens)
    test_linear.test_products(device, rng, "bf16", 0, 7)
    test_linear.test_segments_of_one_storage(device, rng, "q4", 64, 3)
    test_linear.test_add(device, rng, "q4", 64, 7)
    weight, x = make_weight(rng, "q4", 64, (5, 1088), 0.5), test_linear.rows_of(rng, 5, 1088)
    test_linear.assert_product(device, test_linear.run(device, x, [weight]), x, [weight])


# --- matrix units whose lanes are known -------------------------------------------------------


def nvidia_tiles() -> None:
    """All steps of this process are recorded with them."""
    from kernels.arena import Arena

    Arena.tiles = "nvidia"


@check(
    "linear_digits.metal",
    *("linear_gemv_q4_i32x256", "linear_gemv_add_q4_i32x256", "linear_gemv_norm_q4_i32x256"),
    *("linear_gemv_q4_i16x512", "linear_gemv_add_q4_i16x512", "linear_gemv_norm_q4_i16x512"),
)
def digits(device, rng):
    """Either tile, segments, and activations of very different sizes."""
    from kernels import test_linear_digits

    nvidia_tiles()
    for shape in ((5, 256), (67, 768), (19, 2560)):
        test_linear_digits.test_products(device, rng, *shape)
    test_linear_digits.test_segments(device, rng)
    test_linear_digits.test_ranges(device, rng)


@check("moe_digits.metal", "moe_router_q8_q4_i256", "moe_gate_up_q4_i256", "moe_down_q4_q4_i512")
def moe_digits(device, rng):
    """More experts than simdgroups, over two slices of columns."""
    from kernels import test_moe_digits

    nvidia_tiles()
    test_moe_digits.test_experts(device, rng, 10, 1024)


@check(
    "attention_lanes.metal", "attention_decode_bf16_d64_lanes", "attention_decode_bf16_d128_lanes"
)
def attention_lanes(device, rng):
    """Blocks with one token and with all, one part and several; merged on the host."""
    from kernels import test_attention

    nvidia_tiles()
    for shape in ((4, 2, 128, 32), (3, 1, 64, 24)):
        for position in (0, 63, 200):
            test_attention.assert_decode(device, rng, shape, position, "bf16", merges=False)


# --- attention --------------------------------------------------------------------------------


@check("attention.metal", "attention_decode_bf16_d64", "attention_merge_f32")
def attention_decode(device, rng):
    """A context of one token, and one of several parts that share a threadgroup's memory."""
    from kernels import test_attention

    for position in (0, 300, 20_011):
        test_attention.assert_decode(device, rng, (6, 3, 64, 16), position, "bf16")


@check("attention.metal", "attention_prefill_bf16_bf16_d64")
def attention_prefill(device, rng):
    """Rows that begin inside the context, over several tiles of it."""
    from kernels import test_attention

    for tokens, position in ((3, 0), (33, 67)):
        layer = test_attention.filled(rng, (6, 3, 64, 16), "bf16", position, tokens)
        test_attention.assert_prefill(device, rng, layer, tokens, position)


# --- delta ------------------------------------------------------------------------------------


@check("delta.metal", "delta_step_f32_d128", "delta_step_f32_d256")
def delta_step(device, rng):
    """One token after another, at every place of the ring."""
    from kernels import test_delta

    for shape in ((2, 4, 64, 44), (1, 2, 256, 40)):
        test_delta.test_step(device, rng, shape)


@check(
    "delta.metal",
    *("delta_conv_f32", "delta_carry_f32", "delta_chunk_f32_k64", "delta_norm_bf16"),
)
def delta_chunk(device, rng):
    """Chunks, and a prompt cut into them."""
    from kernels import test_delta

    for tokens in (2, 33):
        test_delta.test_chunk(device, rng, (2, 4, 64, 96), tokens)
    test_delta.test_chunks_equal_whole(device, rng, (5, 69))


# --- moe --------------------------------------------------------------------------------------


@check("moe.metal", "moe_router_q8_q4", "moe_gate_up_q4", "moe_down_q4_q4")
def moe(device, rng):
    """Router to residual, with and without equal logits."""
    from kernels import test_moe

    test_moe.test_decode(device, rng, test_moe.MIXES[2])
    for experts in (8, 200):
        test_moe.test_decode_ties(device, rng, experts)


@check("moe_prefill.metal", "moe_route_f32", "moe_sort_u32", "moe_combine_f32")
def moe_rows(device, rng):
    """Choosing, sorting and summing up for many rows."""
    from kernels import test_moe_prefill

    test_moe_prefill.test_route(device, rng, 64, 8, 7)
    for experts, slots, tokens in ((5, 3, 7), (64, 8, 130)):
        test_moe_prefill.test_sort(device, rng, experts, slots, tokens)
    test_moe_prefill.test_combine(device, rng, 100, 3, 7)


@check(
    "moe_prefill.metal",
    *("moe_grouped_gate_up_q4_bf16_t32", "moe_grouped_down_q4_bf16_t32"),
    *("moe_grouped_gate_up_q4_bf16_t64", "moe_grouped_down_q4_bf16_t64"),
)
def moe_grouped(device, rng):
    """Experts' products: some without rows, some with more than a tile."""
    from kernels import test_moe_prefill

    test_moe_prefill.test_grouped_products(device, rng, "q4", 32, 33)
    test_moe_prefill.test_identity_order(device, rng, "q4", 64, 33)


@check("moe_few.metal", "moe_grouped_gate_up_q4_bf16_m8", "moe_grouped_down_q4_bf16_m8")
def moe_few(device, rng):
    """Few rows an expert, by the same tests."""
    from kernels import test_moe_prefill

    test_moe_prefill.test_grouped_products(device, rng, "q4", 32, 8)
    test_moe_prefill.test_identity_order(device, rng, "q4", 64, 4)


# --- sample -----------------------------------------------------------------------------------


@check("sample.metal", "sample_logits_q4", "sample_logits_f32")
def sample_logits(device, rng):
    """A vocabulary that ends inside a block, and equal logits."""
    from kernels import test_sample

    test_sample.test_logits(device, rng, "q4", 64, 1025)
    test_sample.test_candidates_of_ties(device, 1025)


@check("sample.metal", "sample_draw_f32")
def sample_draw(device, rng):
    """Greedy and filtered draws over several blocks."""
    from kernels import test_sample, test_sample_blocks

    for vocab in (65, 5003):
        test_sample.test_greedy(device, rng, vocab)
    test_sample_blocks.test_more_blocks_than_candidates(device, rng)
    test_sample.test_draw_within_candidates(device, rng, 5003, test_sample.ON_CANDIDATES[2])
    test_sample.test_exact_nucleus(device, rng)


@check("sample.metal", "sample_score_f32")
def sample_score(device, rng):
    """Rows longer than a threadgroup, with ties."""
    from kernels import test_sample

    test_sample.test_score(device, rng, 1000, 2)


def main(name: str) -> None:
    """Run one check under every order."""
    from lily._native import kernels as native

    for seed in SEEDS:
        device = native.Device("fibers", threads=1, isa=str(seed))
        CHECKS[name].run(device, np.random.default_rng(0))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Exception as error:
        text = " ".join(str(error).split())
        sys.exit(f"{type(error).__name__}: {text}")
