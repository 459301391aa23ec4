// linear, many rows: the block product with stored weights, into y or added to it. Knows no layer.
#include "linear_gemm.h"

namespace lily {

#define LILY_GEMM(w, S, a, A, variant, Shape)                                            \
  LILY_KERNEL(linear_gemm_##w##_##a##variant, Shape::kThreads, linear_gemm<S, A, Shape>) \
  LILY_KERNEL(linear_gemm_add_##w##_##a##variant, Shape::kThreads, linear_gemm_add<S, A, Shape>)

#define LILY_GEMM_STORAGES(a, A, variant, Shape) \
  LILY_GEMM(f32, F32, a, A, variant, Shape)      \
  LILY_GEMM(bf16, Bf16, a, A, variant, Shape)    \
  LILY_GEMM(q8, Q8, a, A, variant, Shape)        \
  LILY_GEMM(q4, Q4<4>, a, A, variant, Shape)

// The host's table (src/ops/tiles.cpp) says where which is used.
LILY_GEMM_STORAGES(bf16, bfloat, _t32, SmallTile)
LILY_GEMM_STORAGES(bf16, bfloat, _t64, WideTile)
LILY_GEMM_STORAGES(f16, half, _t32, SmallTile)
LILY_GEMM_STORAGES(f16, half, _t64, WideTile)

}  // namespace lily
