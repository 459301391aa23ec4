// The body of tile.h on simdgroup matrices. The element-to-lane layout is nowhere written down:
// where it is needed it is read off the hardware, by loading a matrix whose elements say their own
// row.
#pragma once

#include "kernel.h"

namespace lily {

enum : uint { kTileRows = 8, kTileElements = 2 };

template <class T, uint M, uint K>
struct Left {
  simdgroup_matrix<T, 8, 8> part[M / 8][K / 8];
  void load(threadgroup const T* from, uint stride) thread {
    LILY_UNROLL
    for (uint m = 0; m < M / 8; ++m) {
      LILY_UNROLL
      for (uint k = 0; k < K / 8; ++k) {
        simdgroup_load(part[m][k], from + m * 8 * stride + k * 8, stride);
      }
    }
  }
};

// Rows of the elements that this lane holds in each 8 x 8 part.
struct ElementRows {
  uint row[kTileElements];
};
// table: threadgroup memory of 64 floats, free until the next barrier; all threads of the group
// call.
inline ElementRows element_rows(threadgroup float* table, uint thread_index) {
  if (thread_index < 64) table[thread_index] = float(thread_index / 8);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_matrix<float, 8, 8> rows;
  simdgroup_load(rows, table, 8);
  ElementRows found;
  LILY_UNROLL
  for (uint e = 0; e < kTileElements; ++e) found.row[e] = uint(rows.thread_elements()[e]);
  return found;
}

template <uint M, uint N>
struct Sums {
  simdgroup_matrix<float, 8, 8> part[M / 8][N / 8];
  void clear() thread {
    LILY_UNROLL
    for (uint m = 0; m < M / 8; ++m) {
      LILY_UNROLL
      for (uint n = 0; n < N / 8; ++n) part[m][n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
  void store_band(uint band, uint column, uint columns, threadgroup float* to, uint stride) thread {
    LILY_UNROLL
    for (uint m = 0; m < M / 8; ++m) {
      LILY_UNROLL
      for (uint n = 0; n < N / 8; ++n) {
        if (m != band || n * 8 < column || n * 8 >= column + columns) continue;
        simdgroup_store(part[m][n], to + (n * 8 - column), stride);
      }
    }
  }
  void scale_rows(threadgroup const float* factors, ElementRows rows) thread {
    LILY_UNROLL
    for (uint m = 0; m < M / 8; ++m) {
      LILY_UNROLL
      for (uint e = 0; e < kTileElements; ++e) {
        const float factor = factors[m * 8 + rows.row[e]];
        LILY_UNROLL
        for (uint n = 0; n < N / 8; ++n) part[m][n].thread_elements()[e] *= factor;
      }
    }
  }
};

template <class T, uint M, uint N, uint K>
inline void multiply_nt(thread Sums<M, N>& sums, thread const Left<T, M, K>& left,
                        threadgroup const T* right, uint stride) {
  LILY_UNROLL
  for (uint k = 0; k < K / 8; ++k) {
    LILY_UNROLL
    for (uint n = 0; n < N / 8; ++n) {
      simdgroup_matrix<T, 8, 8> factor;
      simdgroup_load(factor, right + n * 8 * stride + k * 8, stride, ulong2(0, 0), true);
      LILY_UNROLL
      for (uint m = 0; m < M / 8; ++m) {
        simdgroup_multiply_accumulate(sums.part[m][n], left.part[m][k], factor, sums.part[m][n]);
      }
    }
  }
}

template <class T, uint M, uint N, uint K>
inline void multiply_nn(thread Sums<M, N>& sums, thread const Left<T, M, K>& left,
                        threadgroup const T* right, uint stride) {
  LILY_UNROLL
  for (uint k = 0; k < K / 8; ++k) {
    LILY_UNROLL
    for (uint n = 0; n < N / 8; ++n) {
      simdgroup_matrix<T, 8, 8> factor;
      simdgroup_load(factor, right + k * 8 * stride + n * 8, stride);
      LILY_UNROLL
      for (uint m = 0; m < M / 8; ++m) {
        simdgroup_multiply_accumulate(sums.part[m][n], left.part[m][k], factor, sums.part[m][n]);
      }
    }
  }
}

}  // namespace lily
