// linear, 2 to 8 rows: each weight is loaded and decoded once for all of them. A simdgroup takes
// two rows of weights. Knows no layer.
#include "few_rows.h"
#include "segments.h"

namespace lily {

template <class A>
struct FewSource {
  device const A* x;
  uint cols;
  device const A* activation(uint m) const thread { return x + ulong(m) * cols; }
};

template <class S, class A, int M, bool ADD>
inline void linear_few_rows(device const A* x, device float* y, thread const Segments& segments,
                            constant LinearParams& p, threadgroup Sixteen* memory, uint group,
                            uint thread_index, uint lane, uint simdgroup) {
  const uint total = total_rows(p);
  const uint first = (group * kGemvSimdgroups + simdgroup) * kFewWeightRows;
  Row rows[kFewWeightRows];
  LILY_UNROLL
  for (uint r = 0; r < kFewWeightRows; ++r) rows[r] = segment_row<S>(segments, p, first + r);
  float acc[kFewWeightRows][M];
  const FewSource<A> source{x, p.cols};
  few_rows<S, A, M>(rows, segments.matrices[0], source, p.tokens, memory, thread_index, lane, acc);
  if (lane != 0) return;
  LILY_UNROLL
  for (int m = 0; m < M; ++m) {
    if (uint(m) >= p.tokens) continue;
    device float* to = y + ulong(m) * p.out_stride + p.out_offset + first;
    LILY_UNROLL
    for (uint r = 0; r < kFewWeightRows; ++r) {
      if (first + r < total) to[r] = ADD ? to[r] + acc[r][m] : acc[r][m];
    }
  }
}

template <class S, class A, int M>
[[kernel]] void linear_few(device const A* x [[buffer(0)]], device float* y [[buffer(1)]],
                           LILY_SEGMENT(0, 2), LILY_SEGMENT(1, 5), LILY_SEGMENT(2, 8),
                           LILY_SEGMENT(3, 11), constant LinearParams& p [[buffer(14)]],
                           LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, kFewMemory);
  const Segments segments{{LILY_STORED(0), LILY_STORED(1), LILY_STORED(2), LILY_STORED(3)}};
  linear_few_rows<S, A, M, false>(x, y, segments, p, memory, group.x, thread_index, lane,
                                  simdgroup);
}

template <class S, class A, int M>
[[kernel]] void linear_few_add(device const A* x [[buffer(0)]], device float* y [[buffer(1)]],
                               LILY_SEGMENT(0, 2), constant LinearParams& p [[buffer(5)]],
                               LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, memory, kFewMemory);
  const Segments segments{{LILY_STORED(0), LILY_STORED(0), LILY_STORED(0), LILY_STORED(0)}};
  linear_few_rows<S, A, M, true>(x, y, segments, p, memory, group.x, thread_index, lane, simdgroup);
}

#define LILY_FEW(w, S, a, A, M)                                       \
  LILY_KERNEL(linear_gemm_##w##_##a##_m##M, 256, linear_few<S, A, M>) \
  LILY_KERNEL(linear_gemm_add_##w##_##a##_m##M, 256, linear_few_add<S, A, M>)
#define LILY_FEW_STORAGES(a, A, M) \
  LILY_FEW(f32, F32, a, A, M)      \
  LILY_FEW(bf16, Bf16, a, A, M)    \
  LILY_FEW(q8, Q8, a, A, M)        \
  LILY_FEW(q4, Q4<4>, a, A, M)

LILY_FEW_STORAGES(bf16, bfloat, 2)
LILY_FEW_STORAGES(bf16, bfloat, 4)
LILY_FEW_STORAGES(bf16, bfloat, 8)
LILY_FEW_STORAGES(f16, half, 2)
LILY_FEW_STORAGES(f16, half, 4)
LILY_FEW_STORAGES(f16, half, 8)

}  // namespace lily
