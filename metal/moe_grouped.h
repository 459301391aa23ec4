// The grouped products of moe_prefill.metal, for any tile. Knows no layer.
#pragma once

#include "activation.h"
#include "gemm.h"
#include "grouped.h"

namespace lily {

// Gate and up rows share a tile: in each simdgroup's columns, half are gates and half the ups of
// the same outputs, so that SwiGLU needs nobody else's results.
template <class S, class A, class Shape>
struct GateUpSource {
  device const A* x;
  device const uint* order;
  Stored gate, up;
  ulong expert_row;
  ExpertTile tile;
  uint slots, hidden, width, first_output;

  enum : bool { kMayBeShort = true };  // tiles of which are short of rows often
  uint rows() const thread { return tile.end - tile.begin; }
  device const A* activation(uint m) const thread {
    const uint row = min(tile.begin + m, tile.end - 1);
    const uint slot = order[row];
    return x + ulong(slot / slots) * hidden;
  }
  Row weight(uint n) const thread {
    const uint within = n % Shape::WN;
    const bool is_up = within >= Shape::WN / 2;
    const uint output = first_output + n / Shape::WN * (Shape::WN / 2) + within % (Shape::WN / 2);
    return row_of<S>(is_up ? up : gate, expert_row + min(output, width - 1));
  }
};

template <class A, class Shape>
struct GateUpSink {
  device A* act;
  ExpertTile tile;
  uint width, first_output;

  void store(uint m, uint n, threadgroup const float* row, uint lane) const thread {
    const uint output = first_output + n / 2 + lane;
    if (tile.begin + m >= tile.end || lane >= Shape::WN / 2 || output >= width) return;
    act[ulong(tile.begin + m) * width + output] = A(silu(row[lane]) * row[Shape::WN / 2 + lane]);
  }
  uint place(uint m) const thread { return tile.begin + m; }
  // pairs.at[i]: results n + 16 i and its neighbour; the first half are gates.
  template <uint BLOCKS>
  void store_pairs(uint place, uint n, thread const Pairs<BLOCKS>& pairs) const thread {
    const uint output = first_output + n / Shape::WN * (Shape::WN / 2) + n % 16;
    device A* to = act + ulong(place) * width;
    LILY_UNROLL
    for (uint i = 0; i < BLOCKS / 2; ++i) {
      const uint at = output + 16 * i;
      const float2 gate = pairs.at[i], up = pairs.at[BLOCKS / 2 + i];
      if (at < width) to[at] = A(silu(gate.x) * up.x);
      if (at + 1 < width) to[at + 1] = A(silu(gate.y) * up.y);
    }
  }
};

// act[i] = SwiGLU row of order[i] in its expert.   x A [T, H], order u32 [T*S],
// offsets u32 [E + 1], act A [T*S, I]
template <class S, class A, class Shape>
[[kernel]] void moe_grouped_gate_up(
    device const A* x [[buffer(0)]], device const uint* order [[buffer(1)]],
    device const uint* offsets [[buffer(2)]], device const uchar* gate [[buffer(3)]],
    device const bfloat* gate_scales [[buffer(4)]], device const bfloat* gate_biases [[buffer(5)]],
    device const uchar* up [[buffer(6)]], device const bfloat* up_scales [[buffer(7)]],
    device const bfloat* up_biases [[buffer(8)]], device A* act [[buffer(9)]],
    constant MoeParams& p [[buffer(10)]], LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, (GemmMemory<S, A, Shape>::kBytes / 16));
  const ExpertTile tile = find_tile(offsets, p.experts, group.y, Shape::kRows, lane);
  if (tile.begin == tile.end) return;
  const Stored gates{gate, gate_scales, gate_biases, p.hidden, p.group_size};
  const Stored ups{up, up_scales, up_biases, p.hidden, p.group_size};
  const uint first_output = group.x * (Shape::kColumns / 2);
  const GateUpSource<S, A, Shape> source{
      x,    order,   gates,    ups,     ulong(tile.expert) * p.expert_stride_rows,
      tile, p.slots, p.hidden, p.width, first_output};
  const GateUpSink<A, Shape> sink{act, tile, p.width, first_output};
  gemm<S, A>(Shape(), source, sink, gates, memory, thread_index, lane, simdgroup);
}

template <class S, class A>
struct DownSource {
  device const A* x;
  Stored down;
  ulong expert_row;
  ExpertTile tile;
  uint width, hidden, first_output;

  enum : bool { kMayBeShort = true };  // tiles of which are short of rows often
  uint rows() const thread { return tile.end - tile.begin; }
  device const A* activation(uint m) const thread {
    return x + ulong(min(tile.begin + m, tile.end - 1)) * width;
  }
  Row weight(uint n) const thread {
    return row_of<S>(down, expert_row + min(first_output + n, hidden - 1));
  }
};

template <class Shape>
struct DownSink {
  device float* y;
  device const uint* order;
  ExpertTile tile;
  uint hidden, first_output;

  uint place(uint m) const thread { return order[tile.begin + m]; }
  void store(uint m, uint n, threadgroup const float* row, uint lane) const thread {
    if (tile.begin + m >= tile.end) return;
    const uint slot = place(m);
    LILY_UNROLL
    for (uint i = 0; i < Shape::WN; i += kLanes) {
      const uint output = first_output + n + i + lane;
      if (i + lane < Shape::WN && output < hidden) y[ulong(slot) * hidden + output] = row[i + lane];
    }
  }
  // pairs.at[i]: results n + 16 i and its neighbour.
  template <uint BLOCKS>
  void store_pairs(uint place, uint n, thread const Pairs<BLOCKS>& pairs) const thread {
    device float* to = y + ulong(place) * hidden;
    LILY_UNROLL
    for (uint i = 0; i < BLOCKS; ++i) {
      const uint at = first_output + n + 16 * i;
      if (hidden % 2 == 0 && at < hidden) {
        *(device float2*)(to + at) = pairs.at[i];
      } else {
        if (at < hidden) to[at] = pairs.at[i].x;
        if (at + 1 < hidden) to[at + 1] = pairs.at[i].y;
      }
    }
  }
};

// y[order[i]] = down of act[i].   act A [T*S, I], y f32 [T*S, H]
template <class S, class A, class Shape>
[[kernel]] void moe_grouped_down(
    device const A* act [[buffer(0)]], device const uint* order [[buffer(1)]],
    device const uint* offsets [[buffer(2)]], device const uchar* down [[buffer(3)]],
    device const bfloat* down_scales [[buffer(4)]], device const bfloat* down_biases [[buffer(5)]],
    device float* y [[buffer(6)]], constant MoeParams& p [[buffer(7)]], LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, (GemmMemory<S, A, Shape>::kBytes / 16));
  const ExpertTile tile = find_tile(offsets, p.experts, group.y, Shape::kRows, lane);
  if (tile.begin == tile.end) return;
  const Stored matrix{down, down_scales, down_biases, p.width, p.group_size};
  const uint first_output = group.x * Shape::kColumns;
  const DownSource<S, A> source{act,         matrix,  ulong(tile.expert) * p.expert_stride_rows,
                                tile,        p.width, p.hidden,
                                first_output};
  const DownSink<Shape> sink{y, order, tile, p.hidden, first_output};
  gemm<S, A>(Shape(), source, sink, matrix, memory, thread_index, lane, simdgroup);
}

}  // namespace lily
