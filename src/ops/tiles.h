// Inside ops only: how each kernel's work is cut for a GPU, and with which tile. The table of
// choices per kind of device, with its reasons, is tiles.cpp. Numbers here restate what
// metal/*.metal fixes in its own constants; the runner of the tests checks that they agree.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "ops/ops.h"
#include "params.h"

namespace lily::ops {

Grid embed_grid(uint32_t tokens);
Grid norm_grid(uint32_t tokens);
Grid gemv_grid(Tiles tiles, const Matrix& first, const LinearParams& params);  // of its segments
Grid gemm_grid(Tiles tiles, const Matrix& first, DType activation, const LinearParams& params);

Grid rope_grid(uint32_t tokens, uint32_t heads);
Grid attention_decode_grid(Tiles tiles, uint32_t kv_heads, uint32_t head_dim);
Grid attention_merge_grid(uint32_t q_heads, uint32_t head_dim);
Grid attention_prefill_grid(Tiles tiles, DType activation, const AttentionParams& params);

Grid delta_step_grid(uint32_t value_heads, uint32_t key_dim, uint32_t value_dim);
Grid delta_heads_grid(uint32_t tokens, uint32_t heads);  // a simdgroup for a head of a token
Grid delta_conv_grid(uint32_t tokens, uint32_t heads);   // ... of eight tokens
Grid delta_carry_grid(uint32_t channels);
Grid delta_chunk_grid(Tiles tiles, const DeltaParams& params);

Grid moe_router_grid(Tiles tiles, const MoeWeights& moe);
Grid moe_gate_up_grid(Tiles tiles, const MoeWeights& moe);
Grid moe_down_grid(Tiles tiles, const MoeWeights& moe);
Grid moe_route_grid(uint32_t tokens);
Grid moe_sort_grid();
// `columns_per_output` is 2 where gates and ups share a tile.
Grid grouped_grid(Tiles tiles, const Matrix& stack, DType activation, uint32_t rows,
                  uint32_t columns_per_output);
Grid combine_grid(uint32_t tokens, uint32_t hidden);

Grid sample_logits_grid(Tiles tiles, const Matrix& lm_head, uint32_t blocks);
Grid sample_draw_grid();
Grid sample_score_grid(uint32_t tokens);

Grid encoder_rows_grid(uint32_t tokens);
Grid encoder_attention_grid(uint32_t longest, uint32_t heads, uint32_t windows);
Grid encoder_gelu_grid(uint64_t elements);
Grid encoder_pool_grid(uint32_t width, uint32_t windows);

}  // namespace lily::ops
