// The products of prefill and its attention on Metal 4 tensor ops (M5): the kernels of
// linear_gemm.h, moe_grouped.h and attention_prefill.h over tile_tensor_ops.h, under names that end
// in _tensor. UNTESTED, as that file says. A library of its own, compiled for Metal 4 only where
// the device has the units, and used where a self-check passes (src/ops/tensor_check.h); never the
// only path.
#define LILY_TENSOR_OPS
// Where one program holds all kernels (device "fibers"), its linker keeps one copy of functions
// that have one name; these are not those of the portable kernels.
#define lily lily_tensor_ops

#include "attention_prefill.h"
#include "linear_gemm.h"
#include "moe_grouped.h"

namespace lily {

#define LILY_TENSOR_GEMM(w, S, tile, Shape)                                                      \
  LILY_KERNEL(linear_gemm_##w##_bf16##tile##_tensor, 128, linear_gemm<S, bfloat, Shape>)         \
  LILY_KERNEL(linear_gemm_add_##w##_bf16##tile##_tensor, 128, linear_gemm_add<S, bfloat, Shape>) \
  LILY_KERNEL(moe_grouped_gate_up_##w##_bf16##tile##_tensor, 128,                                \
              moe_grouped_gate_up<S, bfloat, Shape>)                                             \
  LILY_KERNEL(moe_grouped_down_##w##_bf16##tile##_tensor, 128, moe_grouped_down<S, bfloat, Shape>)
#define LILY_TENSOR_STORAGES(tile, Shape)   \
  LILY_TENSOR_GEMM(bf16, Bf16, tile, Shape) \
  LILY_TENSOR_GEMM(q8, Q8, tile, Shape)     \
  LILY_TENSOR_GEMM(q4, Q4<4>, tile, Shape)

// The tiles of the portable kernels; the host's table (src/ops/tiles.cpp) says where which is used.
LILY_TENSOR_STORAGES(_t32, SmallTile)
LILY_TENSOR_STORAGES(_t64, WideTile)

// Threadgroup memory: 32 tokens of 256 dimensions, and 64 rows of scores: 31 KB.
LILY_KERNEL(attention_prefill_bf16_bf16_d256_tensor, 128, attention_prefill<256, bfloat>)

}  // namespace lily
