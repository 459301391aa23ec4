// moe, one row: router with the shared expert, the chosen experts' SwiGLU rows, and their weighted
// sum into the residual stream. Which experts run is decided here and never read back. Many rows:
// moe_prefill.metal. Knows no layer.
#include "activation.h"
#include "choose.h"
#include "weights.h"

namespace lily {

// --- Router and shared expert. Threadgroups [0, router_groups) take router rows (experts, then the
// shared expert's own logit); the rest take pairs of the shared expert's gate and up rows.

enum : uint { kRouterRows = 4, kPairs = 2 };  // a simdgroup's rows; gate/up pairs of as many rows

// act[i] = silu(gate_i . x) * (up_i . x) for `pairs` rows from `first`; rows past `end` are not
// written. acc holds gates, then ups.
template <int R>
inline void store_swiglu(thread const float (&acc)[R], device float* act, uint first, uint end,
                         uint lane) {
  if (lane != 0) return;
  LILY_UNROLL
  for (int i = 0; i < R / 2; ++i) {
    if (first + i < end) act[first + i] = silu(acc[i]) * acc[R / 2 + i];
  }
}

// x f32 [1, H], gain f32 [H], logits f32 [1, E + 1], act f32 [1, Is]
template <class R, class S>
[[kernel]] void moe_router(
    device const float* x [[buffer(0)]], device const float* gain [[buffer(1)]],
    device const uchar* router [[buffer(2)]], device const bfloat* router_scales [[buffer(3)]],
    device const bfloat* router_biases [[buffer(4)]], device const uchar* own [[buffer(5)]],
    device const bfloat* own_scales [[buffer(6)]], device const bfloat* own_biases [[buffer(7)]],
    device const uchar* gate [[buffer(8)]], device const bfloat* gate_scales [[buffer(9)]],
    device const bfloat* gate_biases [[buffer(10)]], device const uchar* up [[buffer(11)]],
    device const bfloat* up_scales [[buffer(12)]], device const bfloat* up_biases [[buffer(13)]],
    device float* logits [[buffer(14)]], device float* act [[buffer(15)]],
    constant MoeParams& p [[buffer(16)]], LILY_PLACE) {
  LILY_THREADGROUP(float, slab, kSlabColumns);
  LILY_THREADGROUP(float, partial, kGemvSimdgroups*(kRouterRows + 1));
  const GemvMemory memory{slab, partial};
  const uint router_groups =
      (p.experts + kGemvSimdgroups * kRouterRows) / (kGemvSimdgroups * kRouterRows);
  float acc[kRouterRows];
  Row rows[kRouterRows];
  if (group.x < router_groups) {
    const Stored experts{router, router_scales, router_biases, p.hidden, p.group_size};
    const Stored shared{own, own_scales, own_biases, p.hidden, p.group_size};
    const uint first = (group.x * kGemvSimdgroups + simdgroup) * kRouterRows;
    LILY_UNROLL
    for (uint r = 0; r < kRouterRows; ++r) {
      rows[r] = first + r < p.experts ? row_of<R>(experts, first + r) : row_of<R>(shared, 0);
    }
    gemv<R, kRouterRows, 1>(rows, experts, x, gain, p.eps, memory, thread_index, lane, simdgroup,
                            acc);
    if (lane != 0) return;
    LILY_UNROLL
    for (uint r = 0; r < kRouterRows; ++r) {
      if (first + r <= p.experts) logits[first + r] = acc[r];
    }
    return;
  }
  const Stored gates{gate, gate_scales, gate_biases, p.hidden, p.shared_group_size};
  const Stored ups{up, up_scales, up_biases, p.hidden, p.shared_group_size};
  const uint first = ((group.x - router_groups) * kGemvSimdgroups + simdgroup) * kPairs;
  LILY_UNROLL
  for (uint i = 0; i < kPairs; ++i) {
    const uint n = min(first + i, p.shared_width - 1);
    rows[i] = row_of<S>(gates, n);
    rows[kPairs + i] = row_of<S>(ups, n);
  }
  gemv<S, kRouterRows, 1>(rows, gates, x, gain, p.eps, memory, thread_index, lane, simdgroup, acc);
  store_swiglu(acc, act, first, p.shared_width, lane);
}

// --- The chosen experts' gate and up rows; group.y is the slot. Every threadgroup chooses for
// itself, as far as its slot: that costs less than a launch. The last slot's know all weights.

// act f32 [S, I], ids u32 [S], weights f32 [S + 1]
template <class S>
[[kernel]] void moe_gate_up(
    device const float* x [[buffer(0)]], device const float* gain [[buffer(1)]],
    device const float* logits [[buffer(2)]], device const uchar* gate [[buffer(3)]],
    device const bfloat* gate_scales [[buffer(4)]], device const bfloat* gate_biases [[buffer(5)]],
    device const uchar* up [[buffer(6)]], device const bfloat* up_scales [[buffer(7)]],
    device const bfloat* up_biases [[buffer(8)]], device float* act [[buffer(9)]],
    device uint* ids [[buffer(10)]], device float* weights [[buffer(11)]],
    constant MoeParams& p [[buffer(12)]], LILY_PLACE) {
  LILY_THREADGROUP(float, slab, kSlabColumns);
  LILY_THREADGROUP(float, partial, kGemvSimdgroups * (2 * kPairs + 1));
  // Under way while the experts are chosen.
  const float squares = stage<S>(x, gain, min(p.hidden, uint(kSlabColumns)), slab, thread_index);
  const uint slot = group.y;
  const Ranked ranked = rank_experts(logits, p.experts, slot + 1, lane);
  if (group.x == 0 && slot + 1 == p.slots && simdgroup == 0) {
    store_chosen(weigh_experts(ranked, logits, p.experts, p.slots, lane), p.slots, ids, weights,
                 lane);
  }
  const Stored gates{gate, gate_scales, gate_biases, p.hidden, p.group_size};
  const Stored ups{up, up_scales, up_biases, p.hidden, p.group_size};
  const ulong base = ulong(simd_broadcast(ranked.id, ushort(slot))) * p.expert_stride_rows;
  const uint first = (group.x * kGemvSimdgroups + simdgroup) * kPairs;
  Row rows[2 * kPairs];
  LILY_UNROLL
  for (uint i = 0; i < kPairs; ++i) {
    const uint n = min(first + i, p.width - 1);
    rows[i] = row_of<S>(gates, base + n);
    rows[kPairs + i] = row_of<S>(ups, base + n);
  }
  Ahead<S, 2 * kPairs> ahead;
  ahead.load(rows, gates, 0, min(p.hidden, uint(kSlabColumns)), 0, lane);
  float acc[2 * kPairs];
  gemv_staged<S, 2 * kPairs, 1>(rows, gates, x, gain, p.eps, {slab, partial}, thread_index, lane,
                                simdgroup, ahead, squares, acc);
  store_swiglu(acc, act + ulong(slot) * p.width, first, p.width, lane);
}

// --- Down: a simdgroup takes kDownRows rows of the residual stream, over all slots and the shared
// expert, so that nothing is summed across simdgroups.

enum : uint { kDownRows = 2, kDownSlab = 6144 };  // activations staged at a time: 24 KB

// acc += weight * (rows . act) for the slots [first_slot, last_slot), whose activations are staged.
template <class S>
inline void down_slots(Stored down, device const uint* ids, device const float* weights,
                       ulong stride, uint row, uint last_row, uint first_slot, uint last_slot,
                       threadgroup const float* slab, uint pitch, uint lane,
                       thread float (&acc)[kDownRows]) {
  for (uint slot = first_slot; slot < last_slot; ++slot) {
    Row rows[kDownRows];
    LILY_UNROLL
    for (uint r = 0; r < kDownRows; ++r) {
      rows[r] = row_of<S>(down, ulong(ids ? ids[slot] : 0) * stride + min(row + r, last_row));
    }
    float part[kDownRows];
    LILY_UNROLL
    for (uint r = 0; r < kDownRows; ++r) part[r] = 0.0f;
    Ahead<S, kDownRows> ahead;
    ahead.load(rows, down, 0, down.cols, 0, lane);
    multiply_slab<S, kDownRows, 1>(rows, down, 0, down.cols, slab + (slot - first_slot) * pitch, 0,
                                   lane, ahead, part);
    LILY_UNROLL
    for (uint r = 0; r < kDownRows; ++r) acc[r] = fma(weights[slot], part[r], acc[r]);
  }
}

// Columns that a staged row takes: whole steps of storage S.
template <class S>
inline uint staged_columns(uint columns) {
  const uint per_step = kLanes * S::kCodes;
  return (columns + per_step - 1) / per_step * per_step;
}

// act f32 [S, I], shared_act f32 [Is], ids u32 [S], weights f32 [S + 1], residual f32 [H];
// `logits`, which say what `ids` say, are for kernels that begin before these are there
template <class D, class S>
[[kernel]] void moe_down(
    device const float* act [[buffer(0)]], device const float* shared_act [[buffer(1)]],
    device const uint* ids [[buffer(2)]], device const float* weights [[buffer(3)]],
    device const uchar* down [[buffer(4)]], device const bfloat* down_scales [[buffer(5)]],
    device const bfloat* down_biases [[buffer(6)]], device const uchar* shared [[buffer(7)]],
    device const bfloat* shared_scales [[buffer(8)]],
    device const bfloat* shared_biases [[buffer(9)]], device float* residual [[buffer(10)]],
    device const float* logits [[buffer(11)]], constant MoeParams& p [[buffer(12)]], LILY_PLACE) {
  LILY_THREADGROUP(float, slab, kDownSlab);
  const Stored experts{down, down_scales, down_biases, p.width, p.group_size};
  const Stored own{shared, shared_scales, shared_biases, p.shared_width, p.shared_group_size};
  const uint row = (group.x * kGemvSimdgroups + simdgroup) * kDownRows, last_row = p.hidden - 1;
  float acc[kDownRows];
  LILY_UNROLL
  for (uint r = 0; r < kDownRows; ++r) acc[r] = 0.0f;
  const uint pitch = staged_columns<D>(p.width), at_once = kDownSlab / pitch;
  for (uint first = 0; first < p.slots; first += at_once) {
    const uint last = min(first + at_once, p.slots);
    if (first > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint slot = first; slot < last; ++slot) {
      stage<D>(act + ulong(slot) * p.width, nullptr, p.width, slab + (slot - first) * pitch,
               thread_index);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    down_slots<D>(experts, ids, weights, p.hidden, row, last_row, first, last, slab, pitch, lane,
                  acc);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  stage<S>(shared_act, nullptr, p.shared_width, slab, thread_index);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  down_slots<S>(own, nullptr, weights + p.slots, 0, row, last_row, 0, 1, slab, 0, lane, acc);
  LILY_UNROLL
  for (uint r = 0; r < kDownRows; ++r) {
    const float sum = simd_sum(acc[r]);
    if (lane == 0 && row + r < p.hidden) residual[row + r] += sum;
  }
}

#define LILY_MOE_PAIRS(w, W, D)                                \
  LILY_KERNEL(moe_router_##w##_f32, 256, moe_router<W, F32>)   \
  LILY_KERNEL(moe_router_##w##_bf16, 256, moe_router<W, Bf16>) \
  LILY_KERNEL(moe_router_##w##_q8, 256, moe_router<W, Q8>)     \
  LILY_KERNEL(moe_router_##w##_q4, 256, moe_router<W, Q4<4>>)  \
  LILY_KERNEL(moe_down_##w##_f32, 256, moe_down<D, F32>)       \
  LILY_KERNEL(moe_down_##w##_bf16, 256, moe_down<D, Bf16>)     \
  LILY_KERNEL(moe_down_##w##_q8, 256, moe_down<D, Q8>)         \
  LILY_KERNEL(moe_down_##w##_q4, 256, moe_down<D, Q4<2>>)      \
  LILY_KERNEL(moe_gate_up_##w, 256, moe_gate_up<W>)

LILY_MOE_PAIRS(f32, F32, F32)
LILY_MOE_PAIRS(bf16, Bf16, Bf16)
LILY_MOE_PAIRS(q8, Q8, Q8)
LILY_MOE_PAIRS(q4, Q4<4>, Q4<2>)

}  // namespace lily
