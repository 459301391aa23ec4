// The body of tile.h on Metal 4 tensor ops, which reach the matrix units of M5. UNTESTED on such a
// machine: clang runs it over an emulation (metal/clang/MetalPerformancePrimitives), Apple's
// compiler has never seen it; devices may use its kernels only after a self-check against the
// portable ones on that very machine. Facts from the Metal Shading Language Specification, section
// 7.2.1 (bfloat factors: since macOS 26.1), and Apple's header MPPTensorOpsMatMul2d.h (factors as
// cooperative tensors: since macOS 26.2).
//
// Elements are placed by the coordinates that a cooperative tensor gives for them, so that nothing
// is assumed about which lane holds what; only how many elements a lane holds is, and is looked at.
#pragma once

#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>

#include "kernel.h"

namespace lily {

enum : uint { kTileRows = 16, kTileElements = 16, kLeftElements = 8, kTensorColumns = 32 };

// A simdgroup's product of 16 x 16 and 16 x 32, the right factor stored [32, 16] where TRANSPOSED;
// full precision. Two declarations, for the type's argument is a constant of its own.
#define LILY_TENSOR_PRODUCT(name, TRANSPOSED)                           \
  constexpr auto name##_shape = mpp::tensor_ops::matmul2d_descriptor(   \
      16, 32, 16, false, TRANSPOSED, false,                             \
      mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate); \
  mpp::tensor_ops::matmul2d<name##_shape, metal::execution_simdgroup> name

// Together a simdgroup's lanes then hold as many elements as there are: each is held once.
inline bool has_expected_elements() {
  LILY_TENSOR_PRODUCT(product, true);
  auto left = product.template get_left_input_cooperative_tensor<bfloat, bfloat, float>();
  auto right = product.template get_right_input_cooperative_tensor<bfloat, bfloat, float>();
  auto sums =
      product.template get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
  return left.get_capacity() == kLeftElements && right.get_capacity() == kTileElements &&
         sums.get_capacity() == kTileElements;
}

template <class T, uint M, uint K>
struct Left {
  T part[M / 16][K / 16][kLeftElements];
  void load(threadgroup const T* from, uint stride) thread {
    LILY_TENSOR_PRODUCT(product, true);
    auto factor = product.template get_left_input_cooperative_tensor<T, T, float>();
    LILY_UNROLL
    for (uint e = 0; e < kLeftElements; ++e) {
      const auto at = factor.get_multidimensional_index(ushort(e));
      const uint column = uint(at[0]), row = uint(at[1]);
      LILY_UNROLL
      for (uint m = 0; m < M / 16; ++m) {
        LILY_UNROLL
        for (uint k = 0; k < K / 16; ++k) {
          part[m][k][e] = from[(m * 16 + row) * stride + k * 16 + column];
        }
      }
    }
  }
};

struct ElementRows {
  uint row[kTileElements], column[kTileElements];
};
inline ElementRows element_places() {
  LILY_TENSOR_PRODUCT(product, true);
  auto left = product.template get_left_input_cooperative_tensor<bfloat, bfloat, float>();
  auto right = product.template get_right_input_cooperative_tensor<bfloat, bfloat, float>();
  auto sums =
      product.template get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
  ElementRows found;
  LILY_UNROLL
  for (uint e = 0; e < kTileElements; ++e) {
    const auto at = sums.get_multidimensional_index(ushort(e));
    found.column[e] = uint(at[0]), found.row[e] = uint(at[1]);
  }
  return found;
}
inline ElementRows element_rows(threadgroup float*, uint) { return element_places(); }

template <uint M, uint N>
struct Sums {
  float part[M / 16][N / kTensorColumns][kTileElements];
  // To NaN, which no check passes, where lanes hold another number of elements.
  void clear() thread {
    const float first = has_expected_elements() ? 0.0f : as_type<float>(0x7FC00000u);
    LILY_UNROLL
    for (uint m = 0; m < M / 16; ++m) {
      LILY_UNROLL
      for (uint n = 0; n < N / kTensorColumns; ++n) {
        LILY_UNROLL
        for (uint e = 0; e < kTileElements; ++e) part[m][n][e] = first;
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

// Where a lane's elements of a right factor lie, from the factor's corner on.
struct RightPlaces {
  uint at[kTileElements];
};
template <bool TRANSPOSED, class T>
inline RightPlaces right_places(uint stride) {
  LILY_TENSOR_PRODUCT(product, TRANSPOSED);
  auto factor = product.template get_right_input_cooperative_tensor<T, T, float>();
  RightPlaces found;
  LILY_UNROLL
  for (uint e = 0; e < kTileElements; ++e) {
    const auto at = factor.get_multidimensional_index(ushort(e));  // as it is stored
    const uint column = uint(at[0]), row = uint(at[1]);
    found.at[e] = row * stride + column;
  }
  return found;
}

// One 16 x 32 x 16 step; right: its corner in threadgroup memory.
template <bool TRANSPOSED, class T>
inline void multiply_step(thread float (&sums)[kTileElements],
                          thread const T (&left)[kLeftElements], threadgroup const T* right,
                          RightPlaces places) {
  LILY_TENSOR_PRODUCT(product, TRANSPOSED);
  auto a = product.template get_left_input_cooperative_tensor<T, T, float>();
  auto b = product.template get_right_input_cooperative_tensor<T, T, float>();
  auto c = product.template get_destination_cooperative_tensor<decltype(a), decltype(b), float>();
  LILY_UNROLL
  for (uint e = 0; e < kLeftElements; ++e) a[ushort(e)] = left[e];
  LILY_UNROLL
  for (uint e = 0; e < kTileElements; ++e) {
    b[ushort(e)] = right[places.at[e]];
    c[ushort(e)] = sums[e];
  }
  product.run(a, b, c);
  LILY_UNROLL
  for (uint e = 0; e < kTileElements; ++e) sums[e] = c[ushort(e)];
}

// step_n, step_k: from one part of the right factor to the next.
template <bool TRANSPOSED, class T, uint M, uint N, uint K>
inline void multiply_all(thread Sums<M, N>& sums, thread const Left<T, M, K>& left,
                         threadgroup const T* right, uint stride, uint step_n, uint step_k) {
  const RightPlaces places = right_places<TRANSPOSED, T>(stride);
  LILY_UNROLL
  for (uint k = 0; k < K / 16; ++k) {
    LILY_UNROLL
    for (uint n = 0; n < N / kTensorColumns; ++n) {
      LILY_UNROLL
      for (uint m = 0; m < M / 16; ++m) {
        multiply_step<TRANSPOSED>(sums.part[m][n], left.part[m][k], right + n * step_n + k * step_k,
                                  places);
      }
    }
  }
}

template <class T, uint M, uint N, uint K>
inline void multiply_nt(thread Sums<M, N>& sums, thread const Left<T, M, K>& left,
                        threadgroup const T* right, uint stride) {
  multiply_all<true>(sums, left, right, stride, kTensorColumns * stride, 16);
}

template <class T, uint M, uint N, uint K>
inline void multiply_nn(thread Sums<M, N>& sums, thread const Left<T, M, K>& left,
                        threadgroup const T* right, uint stride) {
  multiply_all<false>(sums, left, right, stride, kTensorColumns, 16 * stride);
}

#undef LILY_TENSOR_PRODUCT

}  // namespace lily
