// linear, many rows, by matrix units whose lanes are known: the kernels of linear_gemm.h over
// gemm_lanes.h. Knows no layer.
#include "gemm_lanes.h"
#include "linear_gemm.h"

namespace lily {

// Groups on a core: as many as have registers without spilling any.
#define LILY_GEMM(w, S, variant, Shape, groups)                                     \
  LILY_CROWDED_KERNEL(linear_gemm_##w##_bf16##variant, Shape::kThreads, groups,     \
                      linear_gemm<S, bfloat, Shape>)                                \
  LILY_CROWDED_KERNEL(linear_gemm_add_##w##_bf16##variant, Shape::kThreads, groups, \
                      linear_gemm_add<S, bfloat, Shape>)

// The host's table (src/ops/tiles.cpp) says where which is used.
LILY_GEMM(q4, Q4<4>, _lanes16, LaneTile16, 4)
LILY_GEMM(q4, Q4<4>, _lanes32, LaneTile32, 4)
LILY_GEMM(q4, Q4<4>, _lanes64, LaneTile64, 3)
LILY_GEMM(q4, Q4<4>, _lanes128, LaneTile128, 2)
LILY_GEMM(q8, Q8, _lanes16, ByteTile16, 4)
LILY_GEMM(q8, Q8, _lanes32, ByteTile32, 3)
LILY_GEMM(q8, Q8, _lanes64, LaneTile64, 2)

}  // namespace lily
