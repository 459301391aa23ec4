// Metal 4 tensor ops on fibers, as far as tile_tensor_ops.h uses them: a simdgroup's product of two
// cooperative tensors. Where an element lives is our own choice, and not Apple's: a kernel that
// assumes a layout must fail here. Emulates no hardware's rounding. Knows no other target.
#pragma once

#include <metal_stdlib>

namespace metal {

struct execution_simdgroup {};

// A column and a row.
struct lily_coordinates {
  int at[2];
  METAL_FUNC int operator[](uint axis) const { return at[axis]; }
};

// ROWS x COLUMNS elements over the 32 lanes of a simdgroup; STEP, odd, scatters them.
template <class T, uint ROWS, uint COLUMNS, uint STEP>
struct cooperative_tensor {
  typedef T element_type;
  enum : uint { kElements = ROWS * COLUMNS, kCapacity = kElements / 32 };

  METAL_FUNC static constexpr uint place(uint lane, uint at) {
    return ((at * 32 + lane) * STEP + 13) % kElements;
  }
  METAL_FUNC static constexpr ushort get_capacity() { return kCapacity; }
  METAL_FUNC lily_coordinates get_multidimensional_index(ushort at) thread const {
    const uint found = place(lily_fibers_lane(), at);
    return {{int(found % COLUMNS), int(found / COLUMNS)}};
  }
  METAL_FUNC thread T& operator[](ushort at) thread { return elements[at]; }

  T elements[kCapacity];
};

}  // namespace metal

namespace mpp {
namespace tensor_ops {

// In Metal a class, whose values are template arguments; here a number stands for the value,
// because clang's language has no such arguments. The name of the class still leads to its modes.
struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
};
METAL_FUNC constexpr uint matmul2d_descriptor(int m, int n, int k, bool transpose_left,
                                              bool transpose_right, bool,
                                              enum matmul2d_descriptor::mode mode) {
  const bool is_known = m == 16 && n == 32 && k == 16 && !transpose_left &&
                        mode == matmul2d_descriptor::mode::multiply_accumulate;
  return is_known ? 1u + uint(transpose_right) : 0u;
}

// What each lane brings to a product, and takes from it.
template <class Left, class Right>
union lily_tensor_product {
  struct {
    Left left;
    Right right;
  } factors;
  float sums[16];
};

template <class Left, class Right, class Sums, bool TRANSPOSED>
LILY_FIBERS_UNWATCHED void lily_combine_tensor_product(thread uchar* lanes) {
  typedef lily_tensor_product<Left, Right> Product;
  float left[16][16], right[16][32], sums[16][32];
  for (uint lane = 0; lane < 32; ++lane) {
    const thread Product& mine = lily_fibers_value<Product>(lanes, lane);
    for (uint at = 0; at < Left::kCapacity; ++at) {
      const uint place = Left::place(lane, at);
      left[place / 16][place % 16] = float(mine.factors.left.elements[at]);
    }
    for (uint at = 0; at < Right::kCapacity; ++at) {
      const uint place = Right::place(lane, at);
      const float value = float(mine.factors.right.elements[at]);
      if (TRANSPOSED) {
        right[place % 16][place / 16] = value;
      } else {
        right[place / 32][place % 32] = value;
      }
    }
  }
  for (uint row = 0; row < 16; ++row) {
    for (uint column = 0; column < 32; ++column) sums[row][column] = 0.0f;
    for (uint k = 0; k < 16; ++k) {
      for (uint column = 0; column < 32; ++column) {
        sums[row][column] = __builtin_fmaf(left[row][k], right[k][column], sums[row][column]);
      }
    }
  }
  for (uint lane = 0; lane < 32; ++lane) {
    for (uint at = 0; at < Sums::kCapacity; ++at) {
      const uint place = Sums::place(lane, at);
      lily_fibers_value<Product>(lanes, lane).sums[at] = sums[place / 32][place % 32];
    }
  }
}

template <uint DESCRIPTOR, class Scope>
struct matmul2d {
  static_assert(DESCRIPTOR != 0, "this emulation accumulates 16 x 32 x 16, the left as it is");
  enum : bool { kTransposed = DESCRIPTOR == 2 };

  template <class L, class R, class Element>
  METAL_FUNC metal::cooperative_tensor<L, 16, 16, 29> get_left_input_cooperative_tensor()
      thread const {
    return {};
  }
  template <class L, class R, class Element>
  METAL_FUNC metal::cooperative_tensor<R, kTransposed ? 32 : 16, kTransposed ? 16 : 32, 37>
  get_right_input_cooperative_tensor() thread const {
    return {};
  }
  template <class Left, class Right, class Element>
  METAL_FUNC metal::cooperative_tensor<Element, 16, 32, 45> get_destination_cooperative_tensor()
      thread const {
    return {};
  }

  template <class Left, class Right, class Sums>
  METAL_FUNC void run(thread Left& left, thread Right& right, thread Sums& sums) thread const {
    lily_tensor_product<Left, Right> product;
    product.factors.left = left;
    product.factors.right = right;
    lily_target::collective("matmul2d",
                            &lily_combine_tensor_product<Left, Right, Sums, kTransposed>, product);
    for (ushort at = 0; at < Sums::kCapacity; ++at) sums[at] += product.sums[at];
  }
};

}  // namespace tensor_ops
}  // namespace mpp
