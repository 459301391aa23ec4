// linear, one row: GEMV with stored weights, plain, added to the residual stream, and with the
// RMSNorm folded in. Matrices that read the same x are one launch: a table of segments says which
// matrix a row belongs to. Many rows: linear_gemm.metal. Knows no layer.
#include "segments.h"

namespace lily {

enum : uint { kPlain = 0, kAdd = 1, kNorm = 2 };

// y[n] (+)= W[n] . x.   x X [1, K], y f32 [1, N]
template <class S, class X, int R, int SPLITS, uint MODE>
inline void linear_rows(device const X* x, device const float* gain, device float* y,
                        thread const Segments& segments, constant LinearParams& p,
                        GemvMemory memory, uint group, uint thread_index, uint lane,
                        uint simdgroup) {
  const uint total = total_rows(p);
  const uint first = (group * (kGemvSimdgroups / SPLITS) + simdgroup / SPLITS) * R;
  Row rows[R];
  LILY_UNROLL
  for (int r = 0; r < R; ++r) rows[r] = segment_row<S>(segments, p, first + r);
  float acc[R];
  gemv<S, R, SPLITS>(rows, segments.matrices[0], x, gain, p.eps, memory, thread_index, lane,
                     simdgroup, acc);
  if (lane != 0 || simdgroup % SPLITS != 0) return;
  LILY_UNROLL
  for (int r = 0; r < R; ++r) {
    if (first + r >= total) continue;
    device float* to = y + p.out_offset + first + r;
    *to = MODE == kAdd ? *to + acc[r] : acc[r];
  }
}

template <class S, class X, int R, int SPLITS>
[[kernel]] void linear_gemv(device const X* x [[buffer(0)]], device float* y [[buffer(1)]],
                            LILY_SEGMENT(0, 2), LILY_SEGMENT(1, 5), LILY_SEGMENT(2, 8),
                            LILY_SEGMENT(3, 11), constant LinearParams& p [[buffer(14)]],
                            LILY_PLACE) {
  LILY_THREADGROUP(float, slab, kSlabColumns);
  LILY_THREADGROUP(float, partial, kGemvSimdgroups*(R + 1));
  const Segments segments{{LILY_STORED(0), LILY_STORED(1), LILY_STORED(2), LILY_STORED(3)}};
  linear_rows<S, X, R, SPLITS, kPlain>(x, nullptr, y, segments, p, {slab, partial}, group.x,
                                       thread_index, lane, simdgroup);
}

template <class S, class X, int R, int SPLITS>
[[kernel]] void linear_gemv_add(device const X* x [[buffer(0)]], device float* y [[buffer(1)]],
                                LILY_SEGMENT(0, 2), constant LinearParams& p [[buffer(5)]],
                                LILY_PLACE) {
  LILY_THREADGROUP(float, slab, kSlabColumns);
  LILY_THREADGROUP(float, partial, kGemvSimdgroups*(R + 1));
  const Segments segments{{LILY_STORED(0), LILY_STORED(0), LILY_STORED(0), LILY_STORED(0)}};
  linear_rows<S, X, R, SPLITS, kAdd>(x, nullptr, y, segments, p, {slab, partial}, group.x,
                                     thread_index, lane, simdgroup);
}

template <class S, int R, int SPLITS>
[[kernel]] void linear_gemv_norm(device const float* x [[buffer(0)]],
                                 device const float* gain [[buffer(1)]],
                                 device float* y [[buffer(2)]], LILY_SEGMENT(0, 3),
                                 LILY_SEGMENT(1, 6), LILY_SEGMENT(2, 9), LILY_SEGMENT(3, 12),
                                 constant LinearParams& p [[buffer(15)]], LILY_PLACE) {
  LILY_THREADGROUP(float, slab, kSlabColumns);
  LILY_THREADGROUP(float, partial, kGemvSimdgroups*(R + 1));
  const Segments segments{{LILY_STORED(0), LILY_STORED(1), LILY_STORED(2), LILY_STORED(3)}};
  linear_rows<S, float, R, SPLITS, kNorm>(x, gain, y, segments, p, {slab, partial}, group.x,
                                          thread_index, lane, simdgroup);
}

// Rows a simdgroup, splits of the columns: the host's table (src/ops/tiles.cpp) says when which.
#define LILY_GEMV(w, S, R, SPLITS)                                                                 \
  LILY_KERNEL(linear_gemv_##w##_r##R##s##SPLITS, 256, linear_gemv<S, float, R, SPLITS>)            \
  LILY_KERNEL(linear_gemv_##w##_bf16_r##R##s##SPLITS, 256, linear_gemv<S, bfloat, R, SPLITS>)      \
  LILY_KERNEL(linear_gemv_##w##_f16_r##R##s##SPLITS, 256, linear_gemv<S, half, R, SPLITS>)         \
  LILY_KERNEL(linear_gemv_add_##w##_r##R##s##SPLITS, 256, linear_gemv_add<S, float, R, SPLITS>)    \
  LILY_KERNEL(linear_gemv_add_##w##_bf16_r##R##s##SPLITS, 256,                                     \
              linear_gemv_add<S, bfloat, R, SPLITS>)                                               \
  LILY_KERNEL(linear_gemv_add_##w##_f16_r##R##s##SPLITS, 256, linear_gemv_add<S, half, R, SPLITS>) \
  LILY_KERNEL(linear_gemv_norm_##w##_r##R##s##SPLITS, 256, linear_gemv_norm<S, R, SPLITS>)

#define LILY_GEMV_TILES(w, ...)   \
  LILY_GEMV(w, __VA_ARGS__, 4, 1) \
  LILY_GEMV(w, __VA_ARGS__, 4, 4) \
  LILY_GEMV(w, __VA_ARGS__, 2, 4)

LILY_GEMV_TILES(f32, F32)
LILY_GEMV_TILES(bf16, Bf16)
LILY_GEMV_TILES(q8, Q8)
LILY_GEMV_TILES(q4, Q4<4>)

}  // namespace lily
