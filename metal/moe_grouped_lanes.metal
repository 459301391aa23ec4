// moe, many rows, by matrix units whose lanes are known: the kernels of moe_grouped.h over
// gemm_lanes.h. Knows no layer.
#include "gemm_lanes.h"
#include "moe_grouped.h"

namespace lily {

#define LILY_GROUPED(w, S, variant, Shape)                              \
  LILY_KERNEL(moe_grouped_gate_up_##w##_bf16##variant, Shape::kThreads, \
              moe_grouped_gate_up<S, bfloat, Shape>)                    \
  LILY_KERNEL(moe_grouped_down_##w##_bf16##variant, Shape::kThreads,    \
              moe_grouped_down<S, bfloat, Shape>)

// The host's table (src/ops/tiles.cpp) says where which is used.
LILY_GROUPED(q4, Q4<4>, _lanes16, LaneTile16)
LILY_GROUPED(q4, Q4<4>, _lanes32, LaneTile32)
LILY_GROUPED(q4, Q4<4>, _lanes64, LaneTile64)
LILY_GROUPED(q8, Q8, _lanes16, ByteTile16)
LILY_GROUPED(q8, Q8, _lanes32, ByteTile32)
LILY_GROUPED(q8, Q8, _lanes64, ByteTile64)

}  // namespace lily
