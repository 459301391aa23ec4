// The kernels of linear_gemm.metal, for any tile. Knows no layer.
#pragma once

#include "gemm.h"
#include "segments.h"

namespace lily {

template <class S, class A>
struct DenseSource {
  device const A* x;
  Segments segments;
  constant LinearParams* p;
  uint first_row, first_column;

  enum : bool { kMayBeShort = false };  // tiles of which are short of rows often
  uint rows() const thread { return p->tokens - first_row; }
  device const A* activation(uint m) const thread {
    return x + ulong(min(first_row + m, p->tokens - 1)) * p->cols;
  }
  Row weight(uint n) const thread { return segment_row<S>(segments, *p, first_column + n); }
};

template <class Shape, bool ADD>
struct DenseSink {
  device float* y;
  ulong stride;
  uint first_row, first_column, tokens, columns;

  void store(uint m, uint n, threadgroup const float* row, uint lane) const thread {
    if (first_row + m >= tokens) return;
    device float* to = y + (first_row + m) * stride + first_column + n;
    LILY_UNROLL
    for (uint i = 0; i < Shape::WN; i += kLanes) {
      if (i + lane >= Shape::WN || first_column + n + i + lane >= columns) continue;
      to[i + lane] = ADD ? to[i + lane] + row[i + lane] : row[i + lane];
    }
  }
  uint place(uint m) const thread { return first_row + m; }
  // pairs.at[i]: results n + 16 i and its neighbour.
  template <uint BLOCKS>
  void store_pairs(uint place, uint n, thread const Pairs<BLOCKS>& pairs) const thread {
    device float* to = y + place * stride + first_column + n;
    const bool vectors = stride % 2 == 0 && columns % 2 == 0;  // y begins at a multiple of 16 bytes
    LILY_UNROLL
    for (uint i = 0; i < BLOCKS; ++i) {
      const uint at = first_column + n + 16 * i;
      if (vectors && at < columns) {
        device float2* pair = (device float2*)(to + 16 * i);
        *pair = ADD ? *pair + pairs.at[i] : pairs.at[i];
      } else {
        if (at < columns) to[16 * i] = ADD ? to[16 * i] + pairs.at[i].x : pairs.at[i].x;
        if (at + 1 < columns) to[16 * i + 1] = ADD ? to[16 * i + 1] + pairs.at[i].y : pairs.at[i].y;
      }
    }
  }
};

template <class S, class A, class Shape, bool ADD>
inline void dense(device const A* x, device float* y, thread const Segments& segments,
                  constant LinearParams& p, threadgroup Sixteen* memory, uint3 group,
                  uint thread_index, uint lane, uint simdgroup) {
  const uint first_row = group.y * Shape::kRows, first_column = group.x * Shape::kColumns;
  const DenseSource<S, A> source{x, segments, &p, first_row, first_column};
  const DenseSink<Shape, ADD> sink{y + p.out_offset, p.out_stride, first_row,
                                   first_column,     p.tokens,     total_rows(p)};
  gemm<S, A>(Shape(), source, sink, segments.matrices[0], memory, thread_index, lane, simdgroup);
}

template <class S, class A, class Shape>
[[kernel]] void linear_gemm(device const A* x [[buffer(0)]], device float* y [[buffer(1)]],
                            LILY_SEGMENT(0, 2), LILY_SEGMENT(1, 5), LILY_SEGMENT(2, 8),
                            LILY_SEGMENT(3, 11), constant LinearParams& p [[buffer(14)]],
                            LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, (GemmMemory<S, A, Shape>::kBytes / 16));
  const Segments segments{{LILY_STORED(0), LILY_STORED(1), LILY_STORED(2), LILY_STORED(3)}};
  dense<S, A, Shape, false>(x, y, segments, p, memory, group, thread_index, lane, simdgroup);
}

template <class S, class A, class Shape>
[[kernel]] void linear_gemm_add(device const A* x [[buffer(0)]], device float* y [[buffer(1)]],
                                LILY_SEGMENT(0, 2), constant LinearParams& p [[buffer(5)]],
                                LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, (GemmMemory<S, A, Shape>::kBytes / 16));
  const Segments segments{{LILY_STORED(0), LILY_STORED(0), LILY_STORED(0), LILY_STORED(0)}};
  dense<S, A, Shape, true>(x, y, segments, p, memory, group, thread_index, lane, simdgroup);
}

}  // namespace lily
