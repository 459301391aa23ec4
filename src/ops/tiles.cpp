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
// The same tiles on tensor ops.
constexpr BlockTile kSmallTensor{32, 64, 128, "_t32_tensor"};
constexpr BlockTile kWideTensor{64, 64, 128, "_t64_tensor"};
constexpr BlockTile kLanes16{16, 128, 128, "_lanes16"};
constexpr BlockTile kLanes32{32, 128, 128, "_lanes32"};
constexpr BlockTile kLanes64{64, 128, 128, "_lanes64"};
constexpr BlockTile kLanes128{128, 128, 128, "_lanes128"};
constexpr BlockTile kBytes16{16, 64, 64, "_lanes16"};  // for codes of 8 bits

// Up to 8 rows: each weight is decoded once for all of them, without matrix units.
constexpr uint32_t kFewRows = 8, kFewWeightRows = 16;  // rows of weights of a threadgroup

// Kernels of metal/gemm_lanes.h: NVIDIA's matrix units outrun weights that pass through threadgroup
// memory; and their tiles want 48 KB of it, which a Mac has not. Rows are taken in pairs.
bool takes_lanes(Tiles tiles, const Matrix& matrix, DType activation) {
  return tiles == Tiles::nvidia && activation == DType::bf16 &&
         (matrix.storage == Storage::q4 || matrix.storage == Storage::q8) &&
         matrix.group_size >= 32 && matrix.cols % std::max(128u, 4 * matrix.group_size) == 0;
}

// Kernels of metal/tensor_ops, for which the portable ones of every name stay.
bool takes_tensor(Tiles tiles, DType activation) {
  return tiles == Tiles::apple_tensor && activation == DType::bf16;
}

// Tiles much taller than an expert's rows compute padding.
BlockTile block_tile(Tiles tiles, const Matrix& matrix, DType activation, uint64_t rows) {
  const bool tensor = takes_tensor(tiles, activation) && matrix.storage != Storage::f32;
  if (rows <= 32) return tensor ? kSmallTensor : kSmall;
  return tensor ? kWideTensor : kWide;
}

// Tall tiles decode each weight for many rows, but there must be tiles for more than half of an
// H200's 132 multiprocessors, and of the tallest two for each: their simdgroups are few. A matrix
// for which no tile does that takes the tallest. `most` bounds the height.
BlockTile lane_tile(const Matrix& matrix, uint64_t columns, uint64_t rows, uint64_t most) {
  constexpr uint64_t kMostCores = 72, kTwoEach = 288;
  const bool is_q4 = matrix.storage == Storage::q4;
  const BlockTile smallest = is_q4 ? kLanes16 : kBytes16;
  const BlockTile tallest = is_q4 ? kLanes128 : kLanes64;
  BlockTile fallback = smallest;
  for (const BlockTile& tile : {tallest, kLanes64, kLanes32, smallest}) {
    if (tile.rows > most) continue;
    const uint64_t tiles = uint64_t{groups_of(columns, tile.columns)} * groups_of(rows, tile.rows);
    if (tiles >= (tile.rows == kLanes128.rows ? kTwoEach : kMostCores)) return tile;
    if (tile.rows > fallback.rows) fallback = tile;
  }
  return fallback;
}

// Kernels of metal/digits.h: integer matrix units, which NVIDIA has, take 4-bit codes as they are.
// There multiply-adds and the decoding of codes cost more than memory; a Mac has less memory
// bandwidth for its arithmetic, and no such units. `slices` of columns at most, one a simdgroup.
constexpr uint64_t kDigitGroup = 64, kDigitRows = 16;
constexpr uint32_t kTwoEach = 264;  // groups, two for each multiprocessor of an H200
bool takes_digits(Tiles tiles, const Matrix& matrix, Storage storage, uint64_t slice_columns,
                  uint64_t slices) {
  return tiles == Tiles::nvidia && matrix.storage == storage && matrix.group_size == kDigitGroup &&
         matrix.cols % slice_columns == 0 && matrix.cols <= slices * slice_columns;
}

}  // namespace

Grid embed_grid(uint32_t tokens) { return grid(tokens, 1, 256); }
Grid norm_grid(uint32_t tokens) { return grid(tokens, 1, 256); }

// Rows a simdgroup and splits of the columns. Four rows share each load of x. Where rows are few,
// columns are split, so that there are simdgroups enough to fill the GPU: a Mac has 10 to 80 cores
// for 8 to 32 simdgroups each; an H200 has 132 of 64, and needs more loads under way.
Grid gemv_grid(Tiles tiles, const Matrix& first, const LinearParams& params) {
  const uint64_t cols = first.cols;
  uint32_t rows = 0;
  for (uint32_t segment_rows : params.segment_rows) rows += segment_rows;
  // Each segment has threadgroups of its own there.
  const auto digits = [&](uint32_t rows_each, const char* variant) {
    uint32_t groups = 0;
    for (uint32_t segment_rows : params.segment_rows) groups += groups_of(segment_rows, rows_each);
    return grid(groups, 1, 256, variant);
  };
  if (takes_digits(tiles, first, Storage::q4, 256, kSimdgroups)) {
    // 12,352 rows in groups of 48 are one wave of two groups on each of the 132 multiprocessors of
    // an H200, with as much under way as these can hold.
    const bool many = rows > kTwoEach * 2 * kDigitRows;
    return many ? digits(3 * kDigitRows, "_i48x256") : digits(2 * kDigitRows, "_i32x256");
  }
  if (takes_digits(tiles, first, Storage::q4, 512, kSimdgroups)) {
    return digits(kDigitRows, "_i16x512");
  }
  const bool wide_split = cols >= 4096;  // a split has a whole step of 1,024 columns
  if (tiles == Tiles::nvidia && rows <= 4096 && wide_split) {
    return grid(groups_of(rows, 4), 1, 256, "_r2s4");
  }
  if (rows <= 4096 && wide_split) return grid(groups_of(rows, 8), 1, 256, "_r4s4");
  return grid(groups_of(rows, 32), 1, 256, "_r4s1");
}

Grid gemm_grid(Tiles tiles, const Matrix& first, DType activation, const LinearParams& params) {
  uint32_t rows = 0;
  bool has_pairs = true;  // no pair of rows lies in two segments
  for (uint32_t segment_rows : params.segment_rows) {
    has_pairs = has_pairs && (segment_rows == 0 || rows % 2 == 0);
    rows += segment_rows;
  }
  const uint32_t tokens = params.tokens;
  if (tokens <= kFewRows) {
    const char* variant = tokens <= 2 ? "_m2" : tokens <= 4 ? "_m4" : "_m8";
    return grid(groups_of(rows, kFewWeightRows), 1, 256, variant);
  }
  const bool lanes = has_pairs && takes_lanes(tiles, first, activation);
  const uint64_t height = tokens <= 16 ? 16 : tokens <= 32 ? 32 : tokens <= 64 ? 64 : 128;
  const BlockTile tile =
      lanes ? lane_tile(first, rows, tokens, height) : block_tile(tiles, first, activation, tokens);
  return grid(groups_of(rows, tile.columns), groups_of(tokens, tile.rows), tile.threads,
              tile.variant);
}

Grid rope_grid(uint32_t tokens, uint32_t heads) {
  return grid(groups_of(heads, kSimdgroups), tokens, 256);
}
// On NVIDIA keys and values stay in registers (metal/attention_lanes.metal), so that twice the
// bytes are under way; on a Mac no kernel knows the lanes of a matrix.
Grid attention_decode_grid(Tiles tiles, uint32_t kv_heads, uint32_t head_dim) {
  const std::string variant = "_d" + std::to_string(head_dim);
  return grid(kv_heads, kAttentionMaxSplits, 128,
              tiles == Tiles::nvidia ? variant + "_lanes" : variant);
}
Grid attention_merge_grid(uint32_t q_heads, uint32_t head_dim) {
  return grid(q_heads, groups_of(head_dim, 64), 256);
}
Grid attention_prefill_grid(Tiles tiles, DType activation, const AttentionParams& params) {
  const bool lanes = tiles == Tiles::nvidia && activation == DType::bf16;
  const bool tensor = takes_tensor(tiles, activation) && params.head_dim == 256;
  const char* kind = lanes ? "_lanes" : tensor ? "_tensor" : "";
  // Of a simdgroup's matrices.
  const uint32_t tile_rows = tiles == Tiles::nvidia || tensor ? 16 : 8;
  const uint64_t rows = uint64_t{params.tokens} * params.q_heads / params.kv_heads;
  return grid(groups_of(rows, 4 * tile_rows), params.kv_heads, 128,
              "_d" + std::to_string(params.head_dim) + kind);
}

Grid delta_step_grid(uint32_t value_heads, uint32_t key_dim, uint32_t value_dim) {
  return grid(value_heads, 1, 512, std::max(key_dim, value_dim) <= 128 ? "_d128" : "_d256");
}
Grid delta_heads_grid(uint32_t tokens, uint32_t heads) {
  return grid(groups_of(heads, kSimdgroups), tokens, 256);
}
Grid delta_conv_grid(uint32_t tokens, uint32_t heads) {
  return grid(groups_of(heads, kSimdgroups), groups_of(tokens, 8), 256);
}
Grid delta_carry_grid(uint32_t channels) { return grid(groups_of(channels, 256), 1, 256); }
// On NVIDIA by matrix units, 16 values' rows a simdgroup.
Grid delta_chunk_grid(Tiles tiles, const DeltaParams& params) {
  const bool lanes = tiles == Tiles::nvidia && params.key_dim == 128 && params.value_dim % 16 == 0;
  return grid(groups_of(params.value_dim, 32), params.value_heads, 128,
              "_k" + std::to_string(params.key_dim) + (lanes ? "_lanes" : ""));
}

Grid moe_router_grid(Tiles tiles, const MoeWeights& moe) {
  const uint64_t rows = moe.router.rows + 1, shared_width = moe.shared_gate.rows;
  if (takes_digits(tiles, moe.router, Storage::q8, 256, kSimdgroups) &&
      takes_digits(tiles, moe.shared_gate, Storage::q4, 256, kSimdgroups)) {
    return grid(groups_of(rows, kDigitRows) + groups_of(shared_width, kDigitRows), 1, 256, "_i256");
  }
  return grid(groups_of(rows, 32) + groups_of(shared_width, 16), 1, 256);
}
Grid moe_gate_up_grid(Tiles tiles, const MoeWeights& moe) {
  const bool digits = takes_digits(tiles, moe.gate, Storage::q4, 256, kSimdgroups);
  const uint32_t groups = groups_of(moe.gate.rows, 16);
  if (digits) return grid(groups, moe.slots, 288, "_i256");  // a simdgroup more, which chooses
  return grid(groups, moe.slots, 256);
}
// By digits after digits only: moe_down_digits reads the router's logits before it waits, which is
// right where the kernel before it is the bridge that moe_gate_up_digits is.
Grid moe_down_grid(Tiles tiles, const MoeWeights& moe) {
  const uint32_t groups = groups_of(moe.down.rows, 16);
  if (takes_digits(tiles, moe.gate, Storage::q4, 256, kSimdgroups) &&
      takes_digits(tiles, moe.down, Storage::q4, 512, UINT32_MAX) &&
      takes_digits(tiles, moe.shared_down, Storage::q4, 512, UINT32_MAX)) {
    return grid(groups, 1, 288, "_i512");  // 8 experts and the shared one: a simdgroup each
  }
  return grid(groups, 1, 256);
}
Grid moe_route_grid(uint32_t tokens) { return grid(groups_of(tokens, kSimdgroups), 1, 256); }
Grid moe_sort_grid() { return grid(16, 1, 512); }
Grid grouped_grid(Tiles tiles, const Matrix& stack, DType activation, uint32_t rows,
                  uint32_t columns_per_output) {
  const uint64_t columns = stack.rows * columns_per_output;
  const uint32_t experts = static_cast<uint32_t>(stack.experts);
  const uint32_t rows_each = groups_of(rows, experts);
  // Each expert may end in a tile that is not full; one without rows has none.
  const auto tiles_of = [&](uint32_t height) {
    return std::min(groups_of(rows, height) + experts, rows);
  };
  const bool lanes = takes_lanes(tiles, stack, activation);
  if (rows_each <= (lanes ? kFewRows / 4 : kFewRows / 2)) {
    return grid(groups_of(columns, kFewWeightRows), tiles_of(kFewRows), 256, "_m8");
  }
  // Experts differ in how many rows they have: on average 3 of 4 of a tile should be some's.
  const uint64_t height = rows_each <= 12 ? 16 : rows_each <= 24 ? 32 : 64;
  const BlockTile tile = lanes ? lane_tile(stack, columns, rows, height)
                               : block_tile(tiles, stack, activation, rows_each);
  return grid(groups_of(columns, tile.columns), tiles_of(tile.rows), tile.threads, tile.variant);
}
Grid combine_grid(uint32_t tokens, uint32_t hidden) {
  return grid(groups_of(hidden, 1024), tokens, 256);
}

Grid sample_logits_grid(Tiles tiles, const Matrix& lm_head, uint32_t blocks) {
  const bool digits = takes_digits(tiles, lm_head, Storage::q4, 256, UINT32_MAX);
  return grid(blocks, 1, 256, digits ? "_i256" : "");
}
Grid sample_draw_grid() { return grid(1, 1, 1024); }
Grid sample_score_grid(uint32_t tokens) { return grid(tokens, 1, 1024); }

Grid encoder_rows_grid(uint32_t tokens) { return grid(tokens, 1, 256); }
Grid encoder_attention_grid(uint32_t longest, uint32_t heads, uint32_t windows) {
  return {{groups_of(longest, 32), heads, windows}, {256, 1, 1}, {}};
}
Grid encoder_gelu_grid(uint64_t elements) { return grid(groups_of(elements, 256), 1, 256); }
Grid encoder_pool_grid(uint32_t width, uint32_t windows) {
  return grid(groups_of(width, 256), windows, 256);
}

}  // namespace lily::ops
