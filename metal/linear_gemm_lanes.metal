// linear, many rows, by matrix units whose lanes are known: the kernels of linear_gemm.h over
// gemm_lanes.h. Knows no layer.
#include "gemm_lanes.h"
#include "linear_gemm.h"

namespace lily {

#define LILY_GEMM(w, S, variant, Shape)                                                        \
  LILY_KERNEL(linear_gemm_##w##_bf16##variant, Shape::kThreads, linear_gemm<S, bfloat, Shape>) \
  LILY_KERNEL(linear_gemm_add_##w##_bf16##variant, Shape::kThreads,                            \
              linear_gemm_add<S, bfloat, Shape>)

// The host's table (src/ops/tiles.cpp) says where which is used.
LILY_GEMM(q4, Q4<4>, _lanes16, LaneTile16)
LILY_GEMM(q4, Q4<4>, _lanes32, LaneTile32)
LILY_GEMM(q4, Q4<4>, _lanes64, LaneTile64)
LILY_GEMM(q4, Q4<4>, _lanes128, LaneTile128)
LILY_GEMM(q8, Q8, _lanes16, ByteTile16)
LILY_GEMM(q8, Q8, _lanes32, ByteTile32)
LILY_GEMM(q8, Q8, _lanes64, ByteTile64)

}  // namespace lily
