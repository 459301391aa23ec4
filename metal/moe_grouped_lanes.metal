// moe, many rows, by matrix units whose lanes are known: the kernels of moe_grouped.h over
// gemm_lanes.h. Knows no layer.
#include "gemm_lanes.h"
#include "moe_grouped.h"

namespace lily {

// Groups on a core: as many as have registers without spilling any.
#define LILY_GROUPED(w, S, variant, Shape, groups)                                      \
  LILY_CROWDED_KERNEL(moe_grouped_gate_up_##w##_bf16##variant, Shape::kThreads, groups, \
                      moe_grouped_gate_up<S, bfloat, Shape>)                            \
  LILY_CROWDED_KERNEL(moe_grouped_down_##w##_bf16##variant, Shape::kThreads, groups,    \
                      moe_grouped_down<S, bfloat, Shape>)

// The host's table (src/ops/tiles.cpp) says where which is used.
LILY_GROUPED(q4, Q4<4>, _lanes16, LaneTile16, 4)
LILY_GROUPED(q4, Q4<4>, _lanes32, LaneTile32, 4)
LILY_GROUPED(q4, Q4<4>, _lanes64, LaneTile64, 3)
LILY_GROUPED(q8, Q8, _lanes16, ByteTile16, 4)
LILY_GROUPED(q8, Q8, _lanes32, ByteTile32, 3)
LILY_GROUPED(q8, Q8, _lanes64, LaneTile64, 2)

}  // namespace lily
