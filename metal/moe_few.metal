// moe, few rows an expert (speculative verification, small batches): the grouped products of
// moe_prefill.metal without matrix units. Each weight of an expert is loaded once for all the rows
// that chose it, 8 at most at a time. Knows no layer.
#include "activation.h"
#include "few_rows.h"
#include "grouped.h"

namespace lily {

template <class A>
struct FewGateUpSource {
  device const A* x;
  device const uint* order;
  ExpertTile tile;
  uint slots, hidden;
  device const A* activation(uint m) const thread {
    const uint slot = order[tile.begin + m];
    return x + ulong(slot / slots) * hidden;
  }
};
template <class A>
struct FewDownSource {
  device const A* act;
  ExpertTile tile;
  uint width;
  device const A* activation(uint m) const thread { return act + ulong(tile.begin + m) * width; }
};

// rows[0] is a gate, rows[1] the up of the same output.
template <class S, class A, int M>
inline void few_gate_up(thread const Row (&rows)[kFewWeightRows], Stored gates,
                        thread const FewGateUpSource<A>& source, device A* act, uint output,
                        uint width, threadgroup Sixteen* memory, uint thread_index, uint lane) {
  const uint count = source.tile.end - source.tile.begin;
  float acc[kFewWeightRows][M];
  few_rows<S, A, M>(rows, gates, source, count, memory, thread_index, lane, acc);
  if (lane != 0 || output >= width) return;
  LILY_UNROLL
  for (int m = 0; m < M; ++m) {
    if (uint(m) >= count) continue;
    act[ulong(source.tile.begin + m) * width + output] = A(silu(acc[0][m]) * acc[1][m]);
  }
}

// Shapes as in moe_prefill.metal.
template <class S, class A>
[[kernel]] void moe_few_gate_up(
    device const A* x [[buffer(0)]], device const uint* order [[buffer(1)]],
    device const uint* offsets [[buffer(2)]], device const uchar* gate [[buffer(3)]],
    device const bfloat* gate_scales [[buffer(4)]], device const bfloat* gate_biases [[buffer(5)]],
    device const uchar* up [[buffer(6)]], device const bfloat* up_scales [[buffer(7)]],
    device const bfloat* up_biases [[buffer(8)]], device A* act [[buffer(9)]],
    constant MoeParams& p [[buffer(10)]], LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, kFewMemory);
  const ExpertTile tile = find_tile(offsets, p.experts, group.y, kFewRowsMax, lane);
  if (tile.begin == tile.end) return;
  const Stored gates{gate, gate_scales, gate_biases, p.hidden, p.group_size};
  const Stored ups{up, up_scales, up_biases, p.hidden, p.group_size};
  const uint output = group.x * kGemvSimdgroups + simdgroup;
  const ulong row = ulong(tile.expert) * p.expert_stride_rows + min(output, p.width - 1);
  const Row rows[kFewWeightRows] = {row_of<S>(gates, row), row_of<S>(ups, row)};
  const FewGateUpSource<A> source{x, order, tile, p.slots, p.hidden};
  const uint count = tile.end - tile.begin;
  if (count == 1) {
    few_gate_up<S, A, 1>(rows, gates, source, act, output, p.width, memory, thread_index, lane);
  } else if (count <= 4) {
    few_gate_up<S, A, 4>(rows, gates, source, act, output, p.width, memory, thread_index, lane);
  } else {
    few_gate_up<S, A, 8>(rows, gates, source, act, output, p.width, memory, thread_index, lane);
  }
}

template <class S, class A, int M>
inline void few_down(thread const Row (&rows)[kFewWeightRows], Stored down,
                     thread const FewDownSource<A>& source, device const uint* order,
                     device float* y, uint first, uint hidden, threadgroup Sixteen* memory,
                     uint thread_index, uint lane) {
  const uint count = source.tile.end - source.tile.begin;
  float acc[kFewWeightRows][M];
  few_rows<S, A, M>(rows, down, source, count, memory, thread_index, lane, acc);
  if (lane != 0) return;
  LILY_UNROLL
  for (int m = 0; m < M; ++m) {
    if (uint(m) >= count) continue;
    const uint slot = order[source.tile.begin + m];
    LILY_UNROLL
    for (uint r = 0; r < kFewWeightRows; ++r) {
      if (first + r < hidden) y[ulong(slot) * hidden + first + r] = acc[r][m];
    }
  }
}

template <class S, class A>
[[kernel]] void moe_few_down(
    device const A* act [[buffer(0)]], device const uint* order [[buffer(1)]],
    device const uint* offsets [[buffer(2)]], device const uchar* down [[buffer(3)]],
    device const bfloat* down_scales [[buffer(4)]], device const bfloat* down_biases [[buffer(5)]],
    device float* y [[buffer(6)]], constant MoeParams& p [[buffer(7)]], LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, kFewMemory);
  const ExpertTile tile = find_tile(offsets, p.experts, group.y, kFewRowsMax, lane);
  if (tile.begin == tile.end) return;
  const Stored matrix{down, down_scales, down_biases, p.width, p.group_size};
  const uint first = (group.x * kGemvSimdgroups + simdgroup) * kFewWeightRows;
  const ulong base = ulong(tile.expert) * p.expert_stride_rows;
  const Row rows[kFewWeightRows] = {row_of<S>(matrix, base + min(first, p.hidden - 1)),
                                    row_of<S>(matrix, base + min(first + 1, p.hidden - 1))};
  const FewDownSource<A> source{act, tile, p.width};
  const uint count = tile.end - tile.begin;
  if (count == 1) {
    few_down<S, A, 1>(rows, matrix, source, order, y, first, p.hidden, memory, thread_index, lane);
  } else if (count <= 4) {
    few_down<S, A, 4>(rows, matrix, source, order, y, first, p.hidden, memory, thread_index, lane);
  } else {
    few_down<S, A, 8>(rows, matrix, source, order, y, first, p.hidden, memory, thread_index, lane);
  }
}

#define LILY_MOE_FEW(w, S, a, A)                                              \
  LILY_KERNEL(moe_grouped_gate_up_##w##_##a##_m8, 256, moe_few_gate_up<S, A>) \
  LILY_KERNEL(moe_grouped_down_##w##_##a##_m8, 256, moe_few_down<S, A>)
#define LILY_MOE_FEW_STORAGES(a, A) \
  LILY_MOE_FEW(f32, F32, a, A)      \
  LILY_MOE_FEW(bf16, Bf16, a, A)    \
  LILY_MOE_FEW(q8, Q8, a, A)        \
  LILY_MOE_FEW(q4, Q4<2>, a, A)

LILY_MOE_FEW_STORAGES(bf16, bfloat)
LILY_MOE_FEW_STORAGES(f16, half)

}  // namespace lily
