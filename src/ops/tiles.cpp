// See tiles.h. Where Apple and NVIDIA want different tiles, the reason stands at the choice.
#include "ops/tiles.h"

#include <algorithm>

#include "params.h"

namespace lily::ops {
namespace {

uint32_t groups_of(uint64_t units, uint64_t per_group) {
  return static_cast<uint32_t>((units + per_group - 1) / per_group);
}
Grid grid(uint32_t x, uint32_t y, uint32_t threads, std::string variant = {}) {
  return {{x, y, 1}, {threads, 1, 1}, std::move(variant)};
}

constexpr uint32_t kSimdgroups = 8;  // of a threadgroup of 256

// A block product's tile; its threads follow from the simdgroups that it is shared by.
struct BlockTile {
  uint32_t rows, columns, threads;
  const char* variant;
};
constexpr BlockTile kSmall{32, 64, 128, "_t32"};
constexpr BlockTile kWide{64, 64, 128, "_t64"};
constexpr BlockTile kLarge{128, 128, 256, "_t128"};

// Up to 8 rows: each weight is decoded once for all of them, without matrix units.
constexpr uint32_t kFewRows = 8, kFewWeightRows = 16;  // rows of weights of a threadgroup

// Tiles much taller than an expert's rows compute padding. 128 x 128 needs 40 KB of threadgroup
// memory, which a Mac has not, and pays where the matrix units outrun the loads of small tiles.
BlockTile block_tile(Tiles tiles, uint64_t rows) {
  if (rows <= 32) return kSmall;
  if (tiles == Tiles::apple || rows <= 64) return kWide;
  return kLarge;
}

}  // namespace

Grid embed_grid(uint32_t tokens) { return grid(tokens, 1, 256); }
Grid norm_grid(uint32_t tokens) { return grid(tokens, 1, 256); }

// Rows a simdgroup and splits of the columns. Four rows share each load of x. Where rows are few,
// columns are split, so that there are simdgroups enough to fill the GPU: a Mac has 10 to 80 cores
// for 8 to 32 simdgroups each; an H200 has 132 of 64, and needs more loads under way.
Grid gemv_grid(Tiles tiles, uint32_t rows, uint32_t cols) {
  const bool wide_split = cols >= 4096;  // a split has a whole step of 1,024 columns
  if (tiles == Tiles::nvidia && rows <= 4096 && wide_split) {
    return grid(groups_of(rows, 4), 1, 256, "_r2s4");
  }
  if (rows <= 4096 && wide_split) return grid(groups_of(rows, 8), 1, 256, "_r4s4");
  return grid(groups_of(rows, 32), 1, 256, "_r4s1");
}

Grid gemm_grid(Tiles tiles, uint32_t tokens, uint32_t rows) {
  if (tokens <= kFewRows) {
    const char* variant = tokens <= 2 ? "_m2" : tokens <= 4 ? "_m4" : "_m8";
    return grid(groups_of(rows, kFewWeightRows), 1, 256, variant);
  }
  const BlockTile tile = block_tile(tiles, tokens);
  return grid(groups_of(rows, tile.columns), groups_of(tokens, tile.rows), tile.threads,
              tile.variant);
}

Grid rope_grid(uint32_t tokens, uint32_t heads) {
  return grid(groups_of(heads, kSimdgroups), tokens, 256);
}
Grid attention_decode_grid(uint32_t kv_heads, uint32_t head_dim) {
  return grid(kv_heads, kAttentionMaxSplits, 128, "_d" + std::to_string(head_dim));
}
Grid attention_merge_grid(uint32_t q_heads, uint32_t head_dim) {
  return grid(q_heads, groups_of(head_dim, 64), 256);
}
Grid attention_prefill_grid(Tiles tiles, uint64_t rows, uint32_t kv_heads, uint32_t head_dim) {
  const uint32_t tile_rows = tiles == Tiles::nvidia ? 16 : 8;  // of a simdgroup's matrices
  return grid(groups_of(rows, 4 * tile_rows), kv_heads, 128, "_d" + std::to_string(head_dim));
}

Grid delta_step_grid(uint32_t value_heads, uint32_t key_dim) {
  return grid(value_heads, 1, 512, key_dim <= 128 ? "_v1" : "_v2");  // float4 a lane
}
Grid delta_heads_grid(uint32_t tokens, uint32_t heads) {
  return grid(groups_of(heads, kSimdgroups), tokens, 256);
}
Grid delta_conv_grid(uint32_t tokens, uint32_t heads) {
  return grid(groups_of(heads, kSimdgroups), groups_of(tokens, 8), 256);
}
Grid delta_carry_grid(uint32_t channels) { return grid(groups_of(channels, 256), 1, 256); }
Grid delta_chunk_grid(uint32_t value_heads, uint32_t value_dim, uint32_t key_dim) {
  return grid(groups_of(value_dim, 32), value_heads, 128, "_k" + std::to_string(key_dim));
}

Grid moe_router_grid(uint32_t experts, uint32_t shared_width) {
  return grid(groups_of(experts + uint64_t{1}, 32) + groups_of(shared_width, 16), 1, 256);
}
Grid moe_gate_up_grid(uint32_t width, uint32_t slots) {
  return grid(groups_of(width, 16), slots, 256);
}
Grid moe_down_grid(uint32_t hidden) { return grid(groups_of(hidden, 16), 1, 256); }
Grid moe_route_grid(uint32_t tokens) { return grid(groups_of(tokens, kSimdgroups), 1, 256); }
Grid moe_sort_grid() { return grid(1, 1, 512); }
Grid grouped_grid(Tiles tiles, uint32_t rows, uint32_t experts, uint32_t outputs,
                  uint32_t columns_per_output) {
  const uint64_t columns = uint64_t{outputs} * columns_per_output;
  const uint32_t rows_each = groups_of(rows, experts);
  // Each expert may end in a tile that is not full; one without rows has none.
  const auto tiles_of = [&](uint32_t height) {
    return std::min(groups_of(rows, height) + experts, rows);
  };
  if (rows_each <= kFewRows / 2) {
    return grid(groups_of(columns, kFewWeightRows), tiles_of(kFewRows), 256, "_m8");
  }
  const BlockTile tile = block_tile(tiles, rows_each);
  return grid(groups_of(columns, tile.columns), tiles_of(tile.rows), tile.threads, tile.variant);
}
Grid combine_grid(uint64_t elements) { return grid(groups_of(elements, 256), 1, 256); }

Grid sample_logits_grid(uint32_t blocks) { return grid(blocks, 1, 256); }
Grid sample_draw_grid() { return grid(1, 1, 1024); }
Grid sample_score_grid(uint32_t tokens) { return grid(tokens, 1, 1024); }

}  // namespace lily::ops
