// attention at decode by matrix units whose lanes are known (lane_tile.h): what attention_decode of
// attention.metal does, where a GPU has such units. Keys and values go from the cache into
// registers and no further; simdgroups take blocks of tokens in turn and wait for each other in the
// end only. Knows no layer.
#include "attention_parts.h"
#include "heads.h"
#include "lane_tile.h"

namespace lily {

// The heads that a simdgroup prepares: two of the queries', and the last of them the new token's
// key. All are under way at once.
struct HeadInputs {
  enum : uint { kQueries = kMaxQueryGroup / 4, kHeads = kQueries + 1 };
  float q_gain[kHeadElements], k_gain[kHeadElements];  // constants, loaded ahead
  float query[kQueries][kHeadElements], key[kHeadElements], value[kHeadElements];
  bool has_key;

  void load_ahead(device const float* q_gains, device const float* k_gains, uint head_dim,
                  uint lane) thread {
    load_head(q_gain, q_gains, head_dim, lane);
    if (has_key) load_head(k_gain, k_gains, head_dim, lane);
  }
  void load(device const float* proj, ProjectionRow row, uint kv_head, uint shared_heads, uint lane,
            uint simdgroup) thread {
    LILY_UNROLL
    for (uint i = 0; i < kQueries; ++i) {
      const uint h = kv_head * shared_heads + min(simdgroup * kQueries + i, shared_heads - 1);
      load_head(query[i], proj + row.query(h), row.head_dim, lane);
    }
    if (!has_key) return;
    load_head(key, proj + row.key(kv_head), row.head_dim, lane);
    load_head(value, proj + row.value(kv_head), row.head_dim, lane);
  }
  // Queries, then the key, normed and turned, in `heads` [kHeads, kMaxHeadDim], this simdgroup's.
  void prepare(thread const Rotation& rotation, uint head_dim, uint rotary, float eps,
               threadgroup float* heads, uint lane) thread {
    LILY_UNROLL
    for (uint i = 0; i < kQueries; ++i) scale_head(query[i], q_gain, head_dim, eps);
    if (has_key) scale_head(key, k_gain, head_dim, eps);
    LILY_UNROLL
    for (uint i = 0; i < kQueries; ++i) {
      Rotation::place(query[i], lane, heads + i * kMaxHeadDim);
    }
    if (has_key) Rotation::place(key, lane, heads + kQueries * kMaxHeadDim);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    LILY_UNROLL
    for (uint i = 0; i < kQueries; ++i) rotation.turn(rotary, lane, heads + i * kMaxHeadDim);
    if (has_key) rotation.turn(rotary, lane, heads + kQueries * kMaxHeadDim);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
};

// A simdgroup's share of a part of the context. Scores stand with tokens as rows and heads as
// columns, weighted values with dimensions as rows and heads as columns.
template <uint D>
struct LaneAttention {
  enum : uint {
    kSimdgroups = 4,
    kThreads = kSimdgroups * kLanes,
    kBlock = 16,           // tokens at a time
    kChunks = D / 32,      // dimensions of keys that four lanes load: 16 bytes each
    kSpans = D / 64,       // of values, that eight lanes load
    kQueryPitch = D + 32,  // elements between staged queries
    kPatchDims = D < 128 ? uint(D) : 128u,  // that simdgroups add up at a time
    kPatch = kSimdgroups * kMaxQueryGroup * kPatchDims,
    kHeads = kSimdgroups * HeadInputs::kHeads * kMaxHeadDim  // before: heads that are prepared
  };
  uint4 keys[2][kChunks];
  uint4 values[kSpans][4];
  float sums[kSpans][4][4];
  float highest[2], total[2];  // of heads 2 (lane % 4) and the next; total: the lane's part

  void begin() thread {
    LILY_UNROLL
    for (uint i = 0; i < 2; ++i) highest[i] = lowest(), total[i] = 0.0f;
    LILY_UNROLL
    for (uint s = 0; s < kSpans; ++s) {
      LILY_UNROLL
      for (uint i = 0; i < 16; ++i) sums[s][i / 4][i % 4] = 0.0f;
    }
  }

  // Tokens from `from` on; past `end`, the last.
  void fetch_keys(device const bfloat* cache, uint from, uint end, uint lane) thread {
    LILY_UNROLL
    for (uint r = 0; r < 2; ++r) {
      const ulong token = min(from + r * 8 + lane / 4, end - 1);
      LILY_UNROLL
      for (uint c = 0; c < kChunks; ++c) {
        keys[r][c] = *(device const uint4*)(cache + token * D + c * 32 + lane % 4 * 8);
      }
    }
  }
  void fetch_values(device const bfloat* cache, uint from, uint end, uint lane) thread {
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) {
      const ulong token = min(from + i / 2 * 8 + lane % 4 * 2 + i % 2, end - 1);
      LILY_UNROLL
      for (uint s = 0; s < kSpans; ++s) {
        values[s][i] = *(device const uint4*)(cache + token * D + s * 64 + lane / 4 * 8);
      }
    }
  }

  // Tokens from `newest` on are that one, which other lanes have in threadgroup memory: key, value.
  void take_newest(threadgroup const bfloat* rows, uint from, uint newest, uint lane) thread {
    LILY_UNROLL
    for (uint r = 0; r < 2; ++r) {
      if (from + r * 8 + lane / 4 < newest) continue;
      LILY_UNROLL
      for (uint c = 0; c < kChunks; ++c) {
        keys[r][c] = *(threadgroup const uint4*)(rows + c * 32 + lane % 4 * 8);
      }
    }
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) {
      if (from + i / 2 * 8 + lane % 4 * 2 + i % 2 < newest) continue;
      LILY_UNROLL
      for (uint s = 0; s < kSpans; ++s) {
        values[s][i] = *(threadgroup const uint4*)(rows + D + s * 64 + lane / 4 * 8);
      }
    }
  }

  // queries: [heads, kQueryPitch]. Two sums in turn, because each waits for the one before it.
  void form_scores(thread float (&scores)[4], threadgroup const bfloat* queries, uint lane) thread {
    float parts[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
    LILY_UNROLL
    for (uint c = 0; c < kChunks; ++c) {
      const uint4 query =
          *(threadgroup const uint4*)(queries + lane / 4 * kQueryPitch + c * 32 + lane % 4 * 8);
      LILY_UNROLL
      for (uint i = 0; i < 2; ++i) {
        const uint a[4] = {keys[0][c][2 * i], keys[1][c][2 * i], keys[0][c][2 * i + 1],
                           keys[1][c][2 * i + 1]};
        multiply_halves(parts[i], a, query[2 * i], query[2 * i + 1]);
      }
    }
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) scores[i] = parts[0][i] + parts[1][i];
  }

  // Scores of tokens from `from` on become weights; those from `end` on have none.
  void weigh(thread float (&scores)[4], uint from, uint end, float scale, uint lane) thread {
    const bool there[2] = {from + lane / 4 < end, from + lane / 4 + 8 < end};
    float top[2] = {lowest(), lowest()};
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) {
      scores[i] = there[i / 2] ? scores[i] * scale : lowest();
      top[i % 2] = max(top[i % 2], scores[i]);
    }
    LILY_UNROLL
    for (ushort apart = 4; apart < 32; apart *= 2) {
      LILY_UNROLL
      for (uint i = 0; i < 2; ++i) top[i] = max(top[i], simd_shuffle_xor(top[i], apart));
    }
    // Seldom, once some tokens have been seen.
    if (simd_any(top[0] > highest[0] || top[1] > highest[1])) {
      LILY_UNROLL
      for (uint i = 0; i < 2; ++i) top[i] = max(top[i], highest[i]);
      rescale(top);
    }
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) {
      scores[i] = there[i / 2] ? exp(scores[i] - highest[i % 2]) : 0.0f;
      total[i % 2] += scores[i];
    }
  }
  void rescale(thread const float (&top)[2]) thread {
    LILY_UNROLL
    for (uint i = 0; i < 2; ++i) {
      const float factor = exp(highest[i] - top[i]);
      highest[i] = top[i];
      total[i] *= factor;
      LILY_UNROLL
      for (uint s = 0; s < kSpans; ++s) {
        LILY_UNROLL
        for (uint j = 0; j < 4; ++j) sums[s][j][i] *= factor, sums[s][j][2 + i] *= factor;
      }
    }
  }

  static inline uint pack(float low, float high) {
    return uint(as_type<ushort>(bfloat(low))) | uint(as_type<ushort>(bfloat(high))) << 16;
  }
  // Row l / 4 of a product is dimension 2 j of the lane's eight, row l / 4 + 8 the next.
  void add_values(thread const float (&weights)[4]) thread {
    const uint b0 = transpose_halves(pack(weights[0], weights[1]));
    const uint b1 = transpose_halves(pack(weights[2], weights[3]));
    LILY_UNROLL
    for (uint s = 0; s < kSpans; ++s) {
      LILY_UNROLL
      for (uint j = 0; j < 4; ++j) {
        const uint a[4] = {pick_bytes(values[s][0][j], values[s][1][j], 0x5410),
                           pick_bytes(values[s][0][j], values[s][1][j], 0x7632),
                           pick_bytes(values[s][2][j], values[s][3][j], 0x5410),
                           pick_bytes(values[s][2][j], values[s][3][j], 0x7632)};
        multiply_halves(sums[s][j], a, b0, b1);
      }
    }
  }

  void fetch(device const bfloat* k_cache, device const bfloat* v_cache, uint from, uint end,
             uint lane) thread {
    fetch_keys(k_cache, from, end, lane);
    fetch_values(v_cache, from, end, lane);
  }
  // The whole part, of which this simdgroup's first block is loaded.
  void attend(device const bfloat* k_cache, device const bfloat* v_cache, Part part,
              threadgroup const bfloat* queries, float scale, uint lane, uint simdgroup) thread {
    for (uint from = part.begin + simdgroup * kBlock; from < part.end;
         from += kSimdgroups * kBlock) {
      float scores[4];
      form_scores(scores, queries, lane);
      const uint next = from + kSimdgroups * kBlock;
      if (next < part.end) fetch_keys(k_cache, next, part.end, lane);
      weigh(scores, from, part.end, scale, lane);
      add_values(scores);
      if (next < part.end) fetch_values(v_cache, next, part.end, lane);
    }
  }
};

// Adds up the simdgroups' shares into the part's row of `partial`. All threads must call it.
// patch: [kSimdgroups, kMaxQueryGroup, kPatchDims], rows: [2, kSimdgroups, kMaxQueryGroup].
template <uint D>
inline void store_part(thread LaneAttention<D>& mine, threadgroup float* patch,
                       threadgroup float* rows, device float* partial, uint heads, ulong pitch,
                       uint thread_index, uint lane, uint simdgroup) {
  typedef LaneAttention<D> Shape;
  enum : uint { kRows = Shape::kSimdgroups * kMaxQueryGroup };
  LILY_UNROLL
  for (uint i = 0; i < 2; ++i) {
    float total = mine.total[i];
    LILY_UNROLL
    for (ushort apart = 4; apart < 32; apart *= 2) total += simd_shuffle_xor(total, apart);
    const uint at = simdgroup * kMaxQueryGroup + lane % 4 * 2 + i;
    if (lane < 4) rows[at] = mine.highest[i], rows[kRows + at] = total;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float top[2];
  LILY_UNROLL
  for (uint i = 0; i < 2; ++i) {
    top[i] = lowest();
    for (uint s = 0; s < Shape::kSimdgroups; ++s) {
      top[i] = max(top[i], rows[s * kMaxQueryGroup + lane % 4 * 2 + i]);
    }
  }
  mine.rescale(top);
  LILY_UNROLL
  for (uint first = 0; first < D; first += Shape::kPatchDims) {
    LILY_UNROLL
    for (uint s = first / 64; s < (first + Shape::kPatchDims) / 64; ++s) {
      LILY_UNROLL
      for (uint j = 0; j < 4; ++j) {
        threadgroup float* to = patch +
                                (simdgroup * kMaxQueryGroup + lane % 4 * 2) * Shape::kPatchDims +
                                (s * 64 - first) + lane / 4 * 8 + 2 * j;
        *(threadgroup float2*)to = float2(mine.sums[s][j][0], mine.sums[s][j][2]);
        *(threadgroup float2*)(to + Shape::kPatchDims) =
            float2(mine.sums[s][j][1], mine.sums[s][j][3]);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    LILY_UNROLL
    for (uint n = 0; n < kMaxQueryGroup * Shape::kPatchDims; n += Shape::kThreads) {
      const uint i = n + thread_index, head = i / Shape::kPatchDims;
      float sum = 0.0f;
      LILY_UNROLL
      for (uint s = 0; s < Shape::kSimdgroups; ++s) {
        sum += patch[s * kMaxQueryGroup * Shape::kPatchDims + i];
      }
      if (head < heads) partial[head * pitch + first + i % Shape::kPatchDims] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (thread_index >= heads) return;
  float highest = lowest(), total = 0.0f;
  for (uint s = 0; s < Shape::kSimdgroups; ++s) {
    highest = max(highest, rows[s * kMaxQueryGroup + thread_index]);
  }
  for (uint s = 0; s < Shape::kSimdgroups; ++s) {
    const uint at = s * kMaxQueryGroup + thread_index;
    total = fma(exp(rows[at] - highest), rows[kRows + at], total);
  }
  partial[thread_index * pitch + D] = highest;
  partial[thread_index * pitch + D + 1] = total;
}

// Bindings and shapes as in attention.metal. A step moves its cursor last, so that it can be read
// early.
template <uint D>
[[kernel]] void attention_decode_lanes(
    device const Cursor* cursor [[buffer(0)]], device const float* proj [[buffer(1)]],
    device const float* q_gain [[buffer(2)]], device const float* k_gain [[buffer(3)]],
    device const float* inv_freq [[buffer(4)]], device bfloat* k_cache [[buffer(5)]],
    device bfloat* v_cache [[buffer(6)]], device float* partial [[buffer(7)]],
    constant AttentionParams& p [[buffer(8)]], LILY_PLACE) {
  typedef LaneAttention<D> Shape;
  LILY_THREADGROUP(Sixteen, query_memory, (kMaxQueryGroup * Shape::kQueryPitch / 8));
  LILY_THREADGROUP(float, patch, (Shape::kPatch > Shape::kHeads ? Shape::kPatch : Shape::kHeads));
  LILY_THREADGROUP(Sixteen, newest_memory, (2 * D / 8));
  LILY_THREADGROUP(float, rows, (2 * Shape::kSimdgroups * kMaxQueryGroup));
  threadgroup bfloat* queries = (threadgroup bfloat*)query_memory;
  threadgroup bfloat* newest = (threadgroup bfloat*)newest_memory;
  const uint position = cursor->position, kv_head = group.x;
  const Part part = part_of(position + 1, group.y);
  const bool has_newest = part.end == position + 1 && part.begin < part.end;
  const ProjectionRow row{p.q_heads, p.kv_heads, D};
  HeadInputs inputs;
  inputs.has_key = has_newest && simdgroup == Shape::kSimdgroups - 1;
  inputs.load_ahead(q_gain, k_gain, D, lane);
  Rotation rotation;
  rotation.begin(inv_freq, p.rotary_dims, position, lane);
  device bfloat* keys = k_cache + ulong(kv_head) * p.capacity * D;
  device bfloat* values = v_cache + ulong(kv_head) * p.capacity * D;
  // The first block, but for the new token: earlier steps wrote it.
  const uint first = part.begin + simdgroup * Shape::kBlock, known = min(part.end, position);
  Shape mine;
  mine.begin();
  if (first < known) mine.fetch(keys, values, first, known, lane);
  LILY_WAIT_FOR_STEP();
  if (part.begin == part.end) return;
  const uint shared_heads = p.q_heads / p.kv_heads;
  inputs.load(proj, row, kv_head, shared_heads, lane, simdgroup);
  threadgroup float* heads = patch + simdgroup * (HeadInputs::kHeads * kMaxHeadDim);
  inputs.prepare(rotation, D, p.rotary_dims, p.eps, heads, lane);
  LILY_UNROLL
  for (uint i = 0; i < HeadInputs::kQueries; ++i) {
    const uint h = simdgroup * HeadInputs::kQueries + i;
    LILY_UNROLL
    for (uint n = 0; n < D / kLanes; ++n) {
      const uint at = n * kLanes + lane;
      queries[h * Shape::kQueryPitch + at] = bfloat(heads[i * kMaxHeadDim + at]);
    }
  }
  if (inputs.has_key) {
    LILY_UNROLL
    for (uint n = 0; n < D / kLanes; ++n) {
      const uint i = n * kLanes + lane;
      newest[i] = bfloat(heads[HeadInputs::kQueries * kMaxHeadDim + i]);
      newest[D + i] = bfloat(inputs.value[n]);
      keys[ulong(position) * D + i] = newest[i];
      values[ulong(position) * D + i] = newest[D + i];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  if (has_newest && first + Shape::kBlock > position) {
    mine.take_newest(newest, first, position, lane);
  }
  mine.attend(keys, values, part, queries, p.scale, lane, simdgroup);
  const ulong pitch = ulong(kAttentionMaxSplits) * (D + 2);
  store_part<D>(mine, patch, rows,
                partial + kv_head * shared_heads * pitch + ulong(group.y) * (D + 2), shared_heads,
                pitch, thread_index, lane, simdgroup);
}
LILY_EARLY_KERNEL(attention_decode_bf16_d64_lanes, 128, 2, attention_decode_lanes<64>)
LILY_EARLY_KERNEL(attention_decode_bf16_d128_lanes, 128, 2, attention_decode_lanes<128>)
LILY_EARLY_KERNEL(attention_decode_bf16_d256_lanes, 128, 2, attention_decode_lanes<256>)

}  // namespace lily
