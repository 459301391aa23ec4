// simdgroup_matrix<T, 8, 8> on fibers. Where an element lives is our own choice, and not Apple's: a
// kernel that assumes a layout must fail here. Knows no other target.
#pragma once

namespace metal {

// Element `at` (0 or 1) of a lane is this one of the 64, in row-major order.
METAL_FUNC constexpr uint lily_matrix_place(uint lane, uint at) {
  return ((at * 32 + lane) * 29 + 13) % 64;
}

template <class T, int rows, int columns>
struct simdgroup_matrix {
  static_assert(rows == 8 && columns == 8, "simdgroup matrices are 8 x 8");
  thread vec<T, 2>& thread_elements() thread { return elements_; }
  thread const vec<T, 2>& thread_elements() const thread { return elements_; }

 private:
  vec<T, 2> elements_;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int rows, int columns>
METAL_FUNC simdgroup_matrix<T, rows, columns> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, rows, columns> matrix;
  matrix.thread_elements() = vec<T, 2>(value);
  return matrix;
}

// origin: x counts columns of memory, y its rows. `transpose` reads or writes the matrix turned.
#define LILY_MATRIX_MEMORY(space)                                                                  \
  template <class T>                                                                               \
  METAL_FUNC void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& matrix, const space T* source,  \
                                 ulong elements_per_row = 8, ulong2 origin = 0,                    \
                                 bool transpose = false) {                                         \
    lily_target::meet("simdgroup_load");                                                           \
    _Pragma("clang loop unroll(full)") for (uint at = 0; at < 2; ++at) {                           \
      const uint place = lily_matrix_place(lily_fibers_lane(), at);                                \
      const uint row = transpose ? place % 8 : place / 8;                                          \
      const uint column = transpose ? place / 8 : place % 8;                                       \
      matrix.thread_elements()[at] =                                                               \
          source[(origin.y + row) * elements_per_row + origin.x + column];                         \
    }                                                                                              \
  }                                                                                                \
  template <class T>                                                                               \
  METAL_FUNC void simdgroup_store(thread const simdgroup_matrix<T, 8, 8>& matrix, space T* target, \
                                  ulong elements_per_row = 8, ulong2 origin = 0,                   \
                                  bool transpose = false) {                                        \
    lily_target::meet("simdgroup_store");                                                          \
    _Pragma("clang loop unroll(full)") for (uint at = 0; at < 2; ++at) {                           \
      const uint place = lily_matrix_place(lily_fibers_lane(), at);                                \
      const uint row = transpose ? place % 8 : place / 8;                                          \
      const uint column = transpose ? place / 8 : place % 8;                                       \
      target[(origin.y + row) * elements_per_row + origin.x + column] =                            \
          matrix.thread_elements()[at];                                                            \
    }                                                                                              \
  }
LILY_MATRIX_MEMORY(device)
LILY_MATRIX_MEMORY(threadgroup)
#undef LILY_MATRIX_MEMORY

// What each lane brings to a product, and takes from it.
struct lily_matrix_product {
  float a[2], b[2], c[2];
};
LILY_FIBERS_UNWATCHED inline void lily_combine_matrix_product(thread uchar* lanes) {
  float a[64], b[64], c[64];
  for (uint lane = 0; lane < 32; ++lane) {
    const thread lily_matrix_product& mine = lily_fibers_value<lily_matrix_product>(lanes, lane);
    for (uint at = 0; at < 2; ++at) {
      const uint place = lily_matrix_place(lane, at);
      a[place] = mine.a[at];
      b[place] = mine.b[at];
      c[place] = mine.c[at];
    }
  }
  for (uint row = 0; row < 8; ++row) {
    for (uint k = 0; k < 8; ++k) {
      for (uint column = 0; column < 8; ++column) {
        c[row * 8 + column] =
            __builtin_fmaf(a[row * 8 + k], b[k * 8 + column], c[row * 8 + column]);
      }
    }
  }
  for (uint lane = 0; lane < 32; ++lane) {
    for (uint at = 0; at < 2; ++at) {
      lily_fibers_value<lily_matrix_product>(lanes, lane).c[at] = c[lily_matrix_place(lane, at)];
    }
  }
}

template <class D, class A, class B, class C>
METAL_FUNC void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d,
                                              thread const simdgroup_matrix<A, 8, 8>& a,
                                              thread const simdgroup_matrix<B, 8, 8>& b,
                                              thread const simdgroup_matrix<C, 8, 8>& c) {
  lily_matrix_product product;
  for (uint at = 0; at < 2; ++at) {
    product.a[at] = float(a.thread_elements()[at]);
    product.b[at] = float(b.thread_elements()[at]);
    product.c[at] = float(c.thread_elements()[at]);
  }
  lily_target::collective("simdgroup_multiply_accumulate", &lily_combine_matrix_product, product);
  for (uint at = 0; at < 2; ++at) d.thread_elements()[at] = D(product.c[at]);
}
template <class D, class A, class B>
METAL_FUNC void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d,
                                   thread const simdgroup_matrix<A, 8, 8>& a,
                                   thread const simdgroup_matrix<B, 8, 8>& b) {
  simdgroup_matrix<float, 8, 8> zero = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_multiply_accumulate(d, a, b, zero);
}

}  // namespace metal
