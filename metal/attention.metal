// attention: gated softmax attention over the KV cache. Decode takes one query row per head and
// cuts the context into parts, which a second kernel merges; prefill takes tiles of query rows that
// share a kv head. Knows no layer.
#include "attention_parts.h"
#include "attention_prefill.h"

namespace lily {

// --- Decode

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
  Rotation rotation;
  rotation.begin(inv_freq, p.rotary_dims, position, lane);
  if (!has_newest) flash.start(k_cache + cache, v_cache + cache, part.begin, part.end);

  for (uint h = simdgroup; h < kTileRows; h += Shape::kSimdgroups) {
    float value[kHeadElements];
    norm_head(proj + row.query(kv_head * shared_heads + min(h, shared_heads - 1)), q_gain, D, p.eps,
              lane, value);
    rotation.apply(value, p.rotary_dims, lane, mine);
    for (uint i = lane; i < D; i += kLanes) query_rows[h * (D + 8) + i] = A(mine[i]);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (has_newest && simdgroup == 0) {
    float value[kHeadElements];
    norm_head(proj + row.key(kv_head), k_gain, D, p.eps, lane, value);
    rotation.apply(value, p.rotary_dims, lane, mine);
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

// Merges the parts of one head (group.x), times sigmoid(gate); 64 of its dimensions (group.y). All
// that a short context has is loaded before the first of it is used.   y f32 [1, Q*D]
enum : uint {
  kMergeThreads = 256,
  kMergeDims = 64,
  kMergeShares = kMergeThreads / kMergeDims,
  kMergeLaneParts = kAttentionMaxSplits / kLanes,
  kMergeAhead = 8  // parts that a thread has under way
};
struct MergeParts {
  float value[kMergeAhead];

  // Of parts first, first + kMergeShares, ...; zero from `end` on.
  void load(device const float* parts, uint pitch, uint first, uint end) thread {
    LILY_UNROLL
    for (uint n = 0; n < kMergeAhead; ++n) {
      const uint s = first + n * kMergeShares;
      value[n] = s < end ? parts[s * pitch] : 0.0f;
    }
  }
  float times(threadgroup const float* weights) thread const {
    float sum = 0.0f;
    LILY_UNROLL
    for (uint n = 0; n < kMergeAhead; ++n) sum = fma(weights[n * kMergeShares], value[n], sum);
    return sum;
  }
};

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
  const uint dim = group.y * kMergeDims + thread_index % kMergeDims;
  const uint share = thread_index / kMergeDims;
  const bool there = dim < p.head_dim;
  const ProjectionRow row = projection_row(p);
  LILY_WAIT_FOR_STEP();

  const float gate = there ? proj[row.gate(head) + dim] : 0.0f;
  float tops[kMergeLaneParts], totals[kMergeLaneParts];
  LILY_UNROLL
  for (uint n = 0; n < kMergeLaneParts; ++n) {
    const uint s = n * kLanes + lane;
    tops[n] = s < splits ? parts[s * pitch + p.head_dim] : lowest();
    totals[n] = s < splits ? parts[s * pitch + p.head_dim + 1] : 0.0f;
  }
  MergeParts ahead;
  ahead.load(parts + dim, pitch, share, there ? splits : 0);
  float highest = lowest(), total = 0.0f;
  LILY_UNROLL
  for (uint n = 0; n < kMergeLaneParts; ++n) highest = max(highest, tops[n]);
  highest = simd_max(highest);
  LILY_UNROLL
  for (uint n = 0; n < kMergeLaneParts; ++n) {
    const float weight = exp(tops[n] - highest);
    total = fma(weight, totals[n], total);
    if (simdgroup == 0) weights[n * kLanes + lane] = weight;
  }
  total = simd_sum(total);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (uint first = 0; first < splits; first += kMergeAhead * kMergeShares) {
    if (first > 0) ahead.load(parts + dim, pitch, first + share, there ? splits : 0);
    sum += ahead.times(weights + first + share);
  }
  shares[thread_index] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index >= kMergeDims || !there) return;
  for (uint s = 1; s < kMergeShares; ++s) sum += shares[s * kMergeDims + thread_index];
  y[head * p.head_dim + dim] = sum / total * sigmoid(gate);
}
LILY_EARLY_KERNEL(attention_merge_f32, 256, 4, attention_merge)

// --- Prefill (attention_prefill.h)

LILY_KERNEL(attention_prefill_bf16_bf16_d64, 128, attention_prefill<64, bfloat>)
LILY_KERNEL(attention_prefill_bf16_bf16_d128, 128, attention_prefill<128, bfloat>)
LILY_KERNEL(attention_prefill_bf16_bf16_d256, 128, attention_prefill<256, bfloat>)
LILY_KERNEL(attention_prefill_bf16_f16_d256, 128, attention_prefill<256, half>)

}  // namespace lily
