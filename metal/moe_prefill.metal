// moe, many rows: choosing, sorting slots by expert, the grouped products, and the weighted sum
// into the residual stream. One row: moe.metal. Knows no layer.
#include "choose.h"
#include "moe_grouped.h"

namespace lily {

enum : uint { kRouteThreads = 256, kRouteSimdgroups = kRouteThreads / kLanes };

// A simdgroup takes a row.   logits f32 [T, E + 1], ids u32 [T, S], weights f32 [T, S + 1]
[[kernel]] void moe_route(device const float* logits [[buffer(0)]], device uint* ids [[buffer(1)]],
                          device float* weights [[buffer(2)]], constant MoeParams& p [[buffer(3)]],
                          LILY_PLACE) {
  const uint t = group.x * kRouteSimdgroups + simdgroup;
  if (t >= p.tokens) return;
  const Chosen chosen =
      choose_experts(logits + ulong(t) * (p.experts + 1), p.experts, p.slots, lane);
  store_chosen(chosen, p.slots, ids + ulong(t) * p.slots, weights + ulong(t) * (p.slots + 1), lane);
}
LILY_KERNEL(moe_route_f32, 256, moe_route)

// --- A stable counting sort. Each simdgroup takes a run of neighbouring slots, 32 at a time: among
// them, a slot's place follows from how many earlier lanes have its expert. Every threadgroup
// counts all slots and places those of its own experts, because slots that are neighbours go to
// places that are not, which is more than one core can write.

enum : uint {
  kSortThreads = 512,
  kSortSimdgroups = kSortThreads / kLanes,
  kSortGroups = 16,
  kSortBatch = 8  // loads that a lane has under way: one at a time, waits would be all of the time
};

// How many lanes below this one have its expert (x), and how many lanes in all (y): a vote for each
// bit of an expert's number leaves the lanes that agree in all of them.
inline uint2 ranks(uint expert, uint lane) {
  uint same = 0xFFFFFFFFu;
  LILY_UNROLL
  for (uint bit = 1; bit <= kMaxExperts; bit *= 2) {
    const bool set = (expert & bit) != 0;
    const uint votes = uint(simd_vote::vote_t(simd_ballot(set)));
    same &= set ? votes : ~votes;
  }
  return uint2(popcount(same & ((1u << lane) - 1)), popcount(same));
}

// The experts of slots from + n * kLanes + lane; past `end`, one that no slot has.
inline void load_experts(device const uint* ids, uint from, uint end, uint lane,
                         thread uint (&expert)[kSortBatch]) {
  LILY_UNROLL
  for (uint n = 0; n < kSortBatch; ++n) {
    const uint i = from + n * kLanes + lane;
    expert[n] = i < end ? ids[i] : uint(kMaxExperts);
  }
}

// ids u32 [T, S], order u32 [T*S], offsets u32 [E + 1]
[[kernel]] void moe_sort(device const uint* ids [[buffer(0)]], device uint* order [[buffer(1)]],
                         device uint* offsets [[buffer(2)]], constant MoeParams& p [[buffer(3)]],
                         LILY_PLACE) {
  LILY_THREADGROUP(uint, counts, kSortSimdgroups * kMaxExperts);  // then: next places
  LILY_THREADGROUP(uint, totals, kSortSimdgroups);
  const uint slots = p.tokens * p.slots;
  const uint run = (slots + kSortThreads - 1) / kSortThreads * kLanes;  // of a simdgroup
  const uint begin = min(simdgroup * run, slots), end = min(begin + run, slots);
  threadgroup uint* mine = counts + simdgroup * kMaxExperts;
  for (uint i = lane; i < kMaxExperts; i += kLanes) mine[i] = 0;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint from = begin; from < end; from += kSortBatch * kLanes) {
    uint expert[kSortBatch];
    load_experts(ids, from, end, lane, expert);
    LILY_UNROLL
    for (uint n = 0; n < kSortBatch; ++n) {
      const uint2 rank = ranks(expert[n], lane);
      if (from + n * kLanes + lane < end && rank.x == 0) mine[expert[n]] += rank.y;
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  // Thread e: this expert's slots in all, and before it those of lower experts.
  uint total = 0;
  if (thread_index < p.experts) {
    for (uint s = 0; s < kSortSimdgroups; ++s) total += counts[s * kMaxExperts + thread_index];
  }
  uint before = simd_prefix_exclusive_sum(total);
  const uint sum = simd_sum(total);
  if (lane == 0) totals[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 0; s < simdgroup; ++s) before += totals[s];
  if (group.x == 0 && thread_index <= p.experts) offsets[thread_index] = before;
  if (thread_index < p.experts) {
    for (uint s = 0; s < kSortSimdgroups; ++s) {
      const uint count = counts[s * kMaxExperts + thread_index];
      counts[s * kMaxExperts + thread_index] = before;
      before += count;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint from = begin; from < end; from += kSortBatch * kLanes) {
    uint expert[kSortBatch];
    load_experts(ids, from, end, lane, expert);
    LILY_UNROLL
    for (uint n = 0; n < kSortBatch; ++n) {
      const uint i = from + n * kLanes + lane;
      const uint2 rank = ranks(expert[n], lane);
      const uint place = i < end ? mine[expert[n]] : 0;
      simdgroup_barrier(mem_flags::mem_threadgroup);
      if (i < end && expert[n] % kSortGroups == group.x) order[place + rank.x] = i;
      if (i < end && rank.x == 0) mine[expert[n]] = place + rank.y;
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
}
LILY_KERNEL(moe_sort_u32, 512, moe_sort)

// --- Grouped products (moe_grouped.h)

#define LILY_GROUPED(w, S, a, A, variant, Shape)                       \
  LILY_KERNEL(moe_grouped_gate_up_##w##_##a##variant, Shape::kThreads, \
              moe_grouped_gate_up<S, A, Shape>)                        \
  LILY_KERNEL(moe_grouped_down_##w##_##a##variant, Shape::kThreads, moe_grouped_down<S, A, Shape>)
#define LILY_GROUPED_STORAGES(a, A, variant, Shape) \
  LILY_GROUPED(f32, F32, a, A, variant, Shape)      \
  LILY_GROUPED(bf16, Bf16, a, A, variant, Shape)    \
  LILY_GROUPED(q8, Q8, a, A, variant, Shape)        \
  LILY_GROUPED(q4, Q4<4>, a, A, variant, Shape)

// The host's table (src/ops/tiles.cpp) says where which is used.
LILY_GROUPED_STORAGES(bf16, bfloat, _t32, SmallTile)
LILY_GROUPED_STORAGES(bf16, bfloat, _t64, WideTile)
LILY_GROUPED_STORAGES(f16, half, _t32, SmallTile)
LILY_GROUPED_STORAGES(f16, half, _t64, WideTile)

// residual[t] += sum over slots of weight * y + shared weight * shared[t]. A threadgroup takes
// kCombineColumns columns of a token. y f32 [T*S, H], shared f32 [T, H], weights f32 [T, S + 1],
// residual f32 [T, H]
enum : uint {
  kCombineThreads = 256,
  kCombineEach = 4,   // columns of a thread
  kCombineAhead = 4,  // slots whose loads are under way together
  kCombineColumns = kCombineThreads * kCombineEach
};
[[kernel]] void moe_combine(device const float* y [[buffer(0)]],
                            device const float* shared [[buffer(1)]],
                            device const float* weights [[buffer(2)]],
                            device float* residual [[buffer(3)]],
                            constant MoeParams& p [[buffer(4)]], LILY_PLACE) {
  const uint t = group.y, first = group.x * kCombineColumns + thread_index;
  device const float* weight = weights + ulong(t) * (p.slots + 1);
  device const float* from = y + ulong(t) * p.slots * p.hidden;
  const ulong row = ulong(t) * p.hidden;
  float total[kCombineEach], before[kCombineEach];
  LILY_UNROLL
  for (uint i = 0; i < kCombineEach; ++i) {
    const uint column = min(first + i * kCombineThreads, p.hidden - 1);
    total[i] = shared[row + column] * weight[p.slots];
    before[i] = residual[row + column];
  }
  for (uint slot = 0; slot < p.slots; slot += kCombineAhead) {
    float part[kCombineAhead][kCombineEach];
    LILY_UNROLL
    for (uint s = 0; s < kCombineAhead; ++s) {
      LILY_UNROLL
      for (uint i = 0; i < kCombineEach; ++i) {
        const uint column = min(first + i * kCombineThreads, p.hidden - 1);
        part[s][i] = from[ulong(min(slot + s, p.slots - 1)) * p.hidden + column];
      }
    }
    LILY_UNROLL
    for (uint s = 0; s < kCombineAhead; ++s) {
      if (slot + s >= p.slots) continue;
      const float factor = weight[slot + s];
      LILY_UNROLL
      for (uint i = 0; i < kCombineEach; ++i) total[i] = fma(part[s][i], factor, total[i]);
    }
  }
  LILY_UNROLL
  for (uint i = 0; i < kCombineEach; ++i) {
    const uint column = first + i * kCombineThreads;
    if (column < p.hidden) residual[row + column] = before[i] + total[i];
  }
}
LILY_KERNEL(moe_combine_f32, 256, moe_combine)

}  // namespace lily
