// The body of tile.h on Metal 4 tensor ops, which reach the matrix units of M5. UNTESTED: it has
// been compiled and run nowhere; devices may use its kernels only after a self-check against the
// portable ones on that very machine. Facts from Apple's header MPPTensorOpsMatMul2d.h (macOS 26.2
// SDK).
//
// Elements are placed by the coordinates that a cooperative tensor gives for them, so that nothing
// is assumed about which lane holds what. A simdgroup's factors of 16 x 16 and 16 x 32 are 8 and 16
// elements a lane.
#pragma once

#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>

#include "kernel.h"

namespace lily {

enum : uint { kTileRows = 16, kTileElements = 16, kLeftElements = 8, kTensorColumns = 32 };

constant constexpr auto kProductNt = mpp::tensor_ops::matmul2d_descriptor(
    16, 32, 16, false, true, false,
    mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate);
constant constexpr auto kProductNn = mpp::tensor_ops::matmul2d_descriptor(
    16, 32, 16, false, false, false,
    mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate);
typedef mpp::tensor_ops::matmul2d<kProductNt, execution_simdgroup> ProductNt;
typedef mpp::tensor_ops::matmul2d<kProductNn, execution_simdgroup> ProductNn;

template <class T, uint M, uint K>
struct Left {
  T part[M / 16][K / 16][kLeftElements];
  void load(threadgroup const T* from, uint stride) thread {
    ProductNt product;
    auto shape = product.template get_left_input_cooperative_tensor<T, T, float>();
    LILY_UNROLL
    for (uint e = 0; e < kLeftElements; ++e) {
      const auto at = shape.get_multidimensional_index(e);  // column, row
      LILY_UNROLL
      for (uint m = 0; m < M / 16; ++m) {
        LILY_UNROLL
        for (uint k = 0; k < K / 16; ++k) {
          part[m][k][e] = from[(m * 16 + at[1]) * stride + k * 16 + at[0]];
        }
      }
    }
  }
};

struct ElementRows {
  uint row[kTileElements], column[kTileElements];
};
inline ElementRows element_places() {
  ProductNt product;
  auto left = product.template get_left_input_cooperative_tensor<bfloat, bfloat, float>();
  auto right = product.template get_right_input_cooperative_tensor<bfloat, bfloat, float>();
  auto sums =
      product.template get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
  ElementRows found;
  LILY_UNROLL
  for (uint e = 0; e < kTileElements; ++e) {
    const auto at = sums.get_multidimensional_index(e);
    found.column[e] = at[0], found.row[e] = at[1];
  }
  return found;
}
inline ElementRows element_rows(threadgroup float*, uint) { return element_places(); }

template <uint M, uint N>
struct Sums {
  float part[M / 16][N / kTensorColumns][kTileElements];
  void clear() thread {
    LILY_UNROLL
    for (uint m = 0; m < M / 16; ++m) {
      LILY_UNROLL
      for (uint n = 0; n < N / kTensorColumns; ++n) {
        LILY_UNROLL
        for (uint e = 0; e < kTileElements; ++e) part[m][n][e] = 0.0f;
      }
    }
  }
  void store_band(uint band, uint column, uint columns, threadgroup float* to, uint stride) thread {
    const ElementRows place = element_places();
    LILY_UNROLL
    for (uint m = 0; m < M / 16; ++m) {
      LILY_UNROLL
      for (uint n = 0; n < N / kTensorColumns; ++n) {
        if (m != band || n * kTensorColumns < column || n * kTensorColumns >= column + columns) {
          continue;
        }
        LILY_UNROLL
        for (uint e = 0; e < kTileElements; ++e) {
          to[place.row[e] * stride + n * kTensorColumns - column + place.column[e]] = part[m][n][e];
        }
      }
    }
  }
  void scale_rows(threadgroup const float* factors, ElementRows rows) thread {
    LILY_UNROLL
    for (uint m = 0; m < M / 16; ++m) {
      LILY_UNROLL
      for (uint e = 0; e < kTileElements; ++e) {
        const float factor = factors[m * 16 + rows.row[e]];
        LILY_UNROLL
        for (uint n = 0; n < N / kTensorColumns; ++n) part[m][n][e] *= factor;
      }
    }
  }
};

// One 16 x 32 x 16 step; right: its corner in threadgroup memory.
template <class Product, class T>
inline void multiply_step(thread float (&sums)[kTileElements],
                          thread const T (&left)[kLeftElements], threadgroup const T* right,
                          uint stride) {
  Product product;
  auto a = product.template get_left_input_cooperative_tensor<T, T, float>();
  auto b = product.template get_right_input_cooperative_tensor<T, T, float>();
  auto c = product.template get_destination_cooperative_tensor<decltype(a), decltype(b), float>();
  LILY_UNROLL
  for (uint e = 0; e < kLeftElements; ++e) a[e] = left[e];
  LILY_UNROLL
  for (uint e = 0; e < kTileElements; ++e) {
    const auto at = b.get_multidimensional_index(e);  // column, row of the factor as it is stored
    b[e] = right[at[1] * stride + at[0]];
    c[e] = sums[e];
  }
  product.run(a, b, c);
  LILY_UNROLL
  for (uint e = 0; e < kTileElements; ++e) sums[e] = c[e];
}

template <class T, uint M, uint N, uint K>
inline void multiply_nt(thread Sums<M, N>& sums, thread const Left<T, M, K>& left,
                        threadgroup const T* right, uint stride) {
  LILY_UNROLL
  for (uint k = 0; k < K / 16; ++k) {
    LILY_UNROLL
    for (uint n = 0; n < N / kTensorColumns; ++n) {
      LILY_UNROLL
      for (uint m = 0; m < M / 16; ++m) {
        multiply_step<ProductNt, T>(sums.part[m][n], left.part[m][k],
                                    right + n * kTensorColumns * stride + k * 16, stride);
      }
    }
  }
}

template <class T, uint M, uint N, uint K>
inline void multiply_nn(thread Sums<M, N>& sums, thread const Left<T, M, K>& left,
                        threadgroup const T* right, uint stride) {
  LILY_UNROLL
  for (uint k = 0; k < K / 16; ++k) {
    LILY_UNROLL
    for (uint n = 0; n < N / kTensorColumns; ++n) {
      LILY_UNROLL
      for (uint m = 0; m < M / 16; ++m) {
        multiply_step<ProductNn, T>(sums.part[m][n], left.part[m][k],
                                    right + k * 16 * stride + n * kTensorColumns, stride);
      }
    }
  }
}

}  // namespace lily
