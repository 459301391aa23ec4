// The body of tile.h on NVIDIA: mma.sync.m16n8k16 with fp32 sums, its factors fetched by ldmatrix
// (PTX ISA, "Matrix fragments for mma.m16n8k16"). Read by clang for PTX only.
#pragma once

#include "kernel.h"

namespace lily {

enum : uint { kTileRows = 16, kTileElements = 4 };

inline uint lane_of_simdgroup() { return __nvvm_read_ptx_sreg_laneid(); }
inline uint shared_address(threadgroup const void* at) { return uint(ulong(at)); }

inline void load_four(thread uint (&to)[4], uint address) {
  __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(address)
                   : "memory");
}
inline void load_four_transposed(thread uint (&to)[4], uint address) {
  __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(address)
                   : "memory");
}
inline void multiply(thread float (&c)[4], thread const uint (&a)[4], uint b0, uint b1, bfloat) {
  __asm__ volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
inline void multiply(thread float (&c)[4], thread const uint (&a)[4], uint b0, uint b1, half) {
  __asm__ volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class T, uint M, uint K>
struct Left {
  uint part[M / 16][K / 16][4];
  // Lane l fetches row l % 8 of the 8 x 8 quarter l / 8: top left, bottom left, top right, ...
  void load(threadgroup const T* from, uint stride) thread {
    const uint lane = lane_of_simdgroup(), row = lane % 16, column = lane / 16 * 8;
    LILY_UNROLL
    for (uint m = 0; m < M / 16; ++m) {
      LILY_UNROLL
      for (uint k = 0; k < K / 16; ++k) {
        load_four(part[m][k], shared_address(from + (m * 16 + row) * stride + k * 16 + column));
      }
    }
  }
};

struct ElementRows {
  uint row[kTileElements];
};
inline ElementRows element_rows(threadgroup float*, uint) {
  const uint row = lane_of_simdgroup() / 4;
  return {{row, row, row + 8, row + 8}};
}

template <uint M, uint N>
struct Sums {
  float part[M / 16][N / 8][4];
  void clear() thread {
    LILY_UNROLL
    for (uint m = 0; m < M / 16; ++m) {
      LILY_UNROLL
      for (uint n = 0; n < N / 8; ++n) {
        LILY_UNROLL
        for (uint e = 0; e < 4; ++e) part[m][n][e] = 0.0f;
      }
    }
  }
  void store_band(uint band, uint column, uint columns, threadgroup float* to, uint stride) thread {
    const uint lane = lane_of_simdgroup();
    threadgroup float* upper = to + lane / 4 * stride + lane % 4 * 2;
    LILY_UNROLL
    for (uint m = 0; m < M / 16; ++m) {
      LILY_UNROLL
      for (uint n = 0; n < N / 8; ++n) {
        if (m != band || n * 8 < column || n * 8 >= column + columns) continue;
        threadgroup float* at = upper + (n * 8 - column);
        *(threadgroup float2*)at = float2(part[m][n][0], part[m][n][1]);
        *(threadgroup float2*)(at + 8 * stride) = float2(part[m][n][2], part[m][n][3]);
      }
    }
  }
  void scale_rows(threadgroup const float* factors, ElementRows rows) thread {
    LILY_UNROLL
    for (uint m = 0; m < M / 16; ++m) {
      const float upper = factors[m * 16 + rows.row[0]], lower = factors[m * 16 + rows.row[2]];
      LILY_UNROLL
      for (uint n = 0; n < N / 8; ++n) {
        part[m][n][0] *= upper, part[m][n][1] *= upper;
        part[m][n][2] *= lower, part[m][n][3] *= lower;
      }
    }
  }
};

// Two column tiles of 8 at once: `right_part` is one step of K for 16 columns.
template <class T, uint M, uint N, uint K>
inline void multiply_pair(thread Sums<M, N>& sums, thread const Left<T, M, K>& left, uint n, uint k,
                          thread const uint (&right_part)[4]) {
  LILY_UNROLL
  for (uint m = 0; m < M / 16; ++m) {
    multiply(sums.part[m][2 * n], left.part[m][k], right_part[0], right_part[1], T());
    multiply(sums.part[m][2 * n + 1], left.part[m][k], right_part[2], right_part[3], T());
  }
}

template <class T, uint M, uint N, uint K>
inline void multiply_nt(thread Sums<M, N>& sums, thread const Left<T, M, K>& left,
                        threadgroup const T* right, uint stride) {
  const uint lane = lane_of_simdgroup();
  const uint row = lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
  LILY_UNROLL
  for (uint k = 0; k < K / 16; ++k) {
    LILY_UNROLL
    for (uint n = 0; n < N / 16; ++n) {
      uint part[4];
      load_four(part, shared_address(right + (n * 16 + row) * stride + k * 16 + column));
      multiply_pair(sums, left, n, k, part);
    }
  }
}

template <class T, uint M, uint N, uint K>
inline void multiply_nn(thread Sums<M, N>& sums, thread const Left<T, M, K>& left,
                        threadgroup const T* right, uint stride) {
  const uint lane = lane_of_simdgroup();
  const uint row = lane / 8 % 2 * 8 + lane % 8, column = lane / 16 * 8;
  LILY_UNROLL
  for (uint k = 0; k < K / 16; ++k) {
    LILY_UNROLL
    for (uint n = 0; n < N / 16; ++n) {
      uint part[4];
      load_four_transposed(part, shared_address(right + (k * 16 + row) * stride + n * 16 + column));
      multiply_pair(sums, left, n, k, part);
    }
  }
}

}  // namespace lily
