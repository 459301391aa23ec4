// attention: gated softmax attention over the KV cache. Decode takes one query row per head and
// cuts the context into parts, which a second kernel merges; prefill takes tiles of query rows that
// share a kv head. Knows no layer.
#include "attention_prefill.h"

namespace lily {

// --- Decode

// Tokens of a part, but for the last, when `length` are in the context.
inline uint part_size(uint length) {
  return max((length + kAttentionMaxSplits - 1) / kAttentionMaxSplits, uint(kAttentionSplitTokens));
}
// Tokens of part `split` when `length` tokens are in the context. Depends on the length alone, so
// that every device cuts alike.
struct Part {
  uint begin, end;
};
inline Part part_of(uint length, uint split) {
  const uint size = part_size(length);
  const uint begin = min(split * size, length);
  return {begin, min(begin + size, length)};
}

// group.x: kv head, group.y: part. The part that holds the newest token writes its k and v before
// it reads them.   partial f32 [Q, kAttentionMaxSplits, D + 2]
template <uint D, class A>
[[kernel]] void attention_decode(
    device const Cursor* cursor [[buffer(0)]], device const float* proj [[buffer(1)]],
    device const float* q_gain [[buffer(2)]], device const float* k_gain [[buffer(3)]],
    device const float* inv_freq [[buffer(4)]], device bfloat* k_cache [[buffer(5)]],
    device bfloat* v_cache [[buffer(6)]], device float* partial [[buffer(7)]],
    constant AttentionParams& p [[buffer(8)]], LILY_PLACE) {
  typedef FlashShape<D, 1, 4> Shape;
  LILY_THREADGROUP(Sixteen, staged_memory, (Shape::kStaged / 8));
  LILY_THREADGROUP(Sixteen, weight_memory, (Shape::kWeights / 8));
  LILY_THREADGROUP(float, scores, Shape::kScores);
  LILY_THREADGROUP(float, factors, Shape::kFactors);
  // Before the first block, queries lie where blocks are staged later, and heads where scores lie.
  threadgroup A* query_rows = (threadgroup A*)staged_memory;
  const uint position = cursor->position, kv_head = group.x;
  const Part part = part_of(position + 1, group.y);
  if (part.begin == part.end) return;
  const ProjectionRow row = projection_row(p);
  const uint shared_heads = p.q_heads / p.kv_heads;
  const ulong cache = ulong(kv_head) * p.capacity * D;
  threadgroup float* mine = scores + simdgroup * kMaxHeadDim;
  Flash<A, bfloat, Shape> flash;
  flash.begin({(threadgroup A*)staged_memory, (threadgroup A*)weight_memory, scores, factors},
              thread_index, lane, simdgroup);
  const bool has_newest = part.end == position + 1;
  if (!has_newest) flash.start(k_cache + cache, v_cache + cache, part.begin, part.end);

  for (uint h = simdgroup; h < kTileRows; h += Shape::kSimdgroups) {
    float value[kHeadElements];
    norm_head(proj + row.query(kv_head * shared_heads + min(h, shared_heads - 1)), q_gain, D, p.eps,
              lane, value);
    rotate_head(value, inv_freq, D, p.rotary_dims, position, lane, mine);
    for (uint i = lane; i < D; i += kLanes) query_rows[h * (D + 8) + i] = A(mine[i]);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (has_newest && simdgroup == 0) {
    float value[kHeadElements];
    norm_head(proj + row.key(kv_head), k_gain, D, p.eps, lane, value);
    rotate_head(value, inv_freq, D, p.rotary_dims, position, lane, mine);
    const ulong at = cache + ulong(position) * D;
    for (uint i = lane; i < D; i += kLanes) {
      k_cache[at + i] = bfloat(mine[i]);
      v_cache[at + i] = bfloat(proj[row.value(kv_head) + i]);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  if (has_newest) flash.start(k_cache + cache, v_cache + cache, part.begin, part.end);
  flash.queries.load(query_rows + flash.dim, D + 8);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  flash.attend(k_cache + cache, v_cache + cache, part.begin, part.end, part.end - 1, p.scale);

  // Out through this simdgroup's scores, a block of columns at a time.
  threadgroup float* patch = scores + simdgroup * Shape::kScoreTile;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  LILY_UNROLL
  for (uint column = 0; column < Shape::kDims; column += Shape::kPatch) {
    flash.values.store_band(0, column, Shape::kPatch, patch, Shape::kScorePitch);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = lane; i < shared_heads * Shape::kPatch; i += kLanes) {
      const uint h = i / Shape::kPatch, c = i % Shape::kPatch;
      const ulong to =
          (ulong(kv_head * shared_heads + h) * kAttentionMaxSplits + group.y) * (D + 2);
      partial[to + flash.dim + column + c] = patch[h * Shape::kScorePitch + c];
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  const uint h = lane / Shape::kLanesPerRow;
  if (simdgroup == 0 && lane % Shape::kLanesPerRow == 0 && h < shared_heads) {
    const ulong to = (ulong(kv_head * shared_heads + h) * kAttentionMaxSplits + group.y) * (D + 2);
    partial[to + D] = flash.highest;
    partial[to + D + 1] = flash.total;
  }
}
LILY_KERNEL(attention_decode_bf16_d64, 128, attention_decode<64, bfloat>)
LILY_KERNEL(attention_decode_bf16_d128, 128, attention_decode<128, bfloat>)
LILY_KERNEL(attention_decode_bf16_d256, 128, attention_decode<256, bfloat>)

// Merges the parts of one head (group.x), times sigmoid(gate); 64 of its dimensions (group.y).
// y f32 [1, Q*D]
enum : uint { kMergeThreads = 256, kMergeDims = 64, kMergeShares = kMergeThreads / kMergeDims };
[[kernel]] void attention_merge(device const Cursor* cursor [[buffer(0)]],
                                device const float* proj [[buffer(1)]],
                                device const float* partial [[buffer(2)]],
                                device float* y [[buffer(3)]],
                                constant AttentionParams& p [[buffer(4)]], LILY_PLACE) {
  LILY_THREADGROUP(float, weights, kAttentionMaxSplits);
  LILY_THREADGROUP(float, shares, kMergeThreads);
  const uint length = cursor->position + 1, head = group.x, pitch = p.head_dim + 2;
  device const float* parts = partial + ulong(head) * kAttentionMaxSplits * pitch;
  const uint size = part_size(length);
  const uint splits = (length + size - 1) / size;
  float highest = lowest();
  for (uint s = lane; s < splits; s += kLanes)
    highest = max(highest, parts[s * pitch + p.head_dim]);
  highest = simd_max(highest);
  float total = 0.0f;
  for (uint s = lane; s < splits; s += kLanes) {
    const float weight = exp(parts[s * pitch + p.head_dim] - highest);
    total = fma(weight, parts[s * pitch + p.head_dim + 1], total);
    if (simdgroup == 0) weights[s] = weight;
  }
  total = simd_sum(total);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint dim = group.y * kMergeDims + thread_index % kMergeDims;
  float sum = 0.0f;
  if (dim < p.head_dim) {
    for (uint s = thread_index / kMergeDims; s < splits; s += kMergeShares) {
      sum = fma(weights[s], parts[s * pitch + dim], sum);
    }
  }
  shares[thread_index] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index >= kMergeDims || dim >= p.head_dim) return;
  for (uint s = 1; s < kMergeShares; ++s) sum += shares[s * kMergeDims + thread_index];
  const ProjectionRow row = projection_row(p);
  y[head * p.head_dim + dim] = sum / total * sigmoid(proj[row.gate(head) + dim]);
}
LILY_KERNEL(attention_merge_f32, 256, attention_merge)

// --- Prefill (attention_prefill.h)

LILY_KERNEL(attention_prefill_bf16_bf16_d64, 128, attention_prefill<64, bfloat>)
LILY_KERNEL(attention_prefill_bf16_bf16_d128, 128, attention_prefill<128, bfloat>)
LILY_KERNEL(attention_prefill_bf16_bf16_d256, 128, attention_prefill<256, bfloat>)
LILY_KERNEL(attention_prefill_bf16_f16_d256, 128, attention_prefill<256, half>)

}  // namespace lily
