// linear, one row, 4-bit weights, by integer matrix units (digits.h): what linear.metal does, where
// a GPU has such units. Knows no layer.
#include "digits.h"
#include "segments.h"

namespace lily {

enum : uint { kDigitThreads = 256, kDigitSimdgroups = kDigitThreads / kLanes };

// Rows of one segment from `first` on; past its end, the last.
template <class S>
struct SegmentRows {
  Stored matrix;
  uint first, rows;
  uint out;  // where the segment's first row goes
  Row row(uint n) const thread { return code_row<S>(matrix, min(first + n, rows - 1)); }
};

// The rows of a threadgroup. Every segment has threadgroups of its own, so that which one it is is
// the same for all threads. It is chosen among registers: an index would put all into memory.
template <class S>
inline SegmentRows<S> rows_of_group(thread const Segments& segments, constant LinearParams& p,
                                    uint group, uint rows_each) {
  SegmentRows<S> found{segments.matrices[0], group * rows_each, p.segment_rows[0], p.out_offset};
  uint begin = 0, out = p.out_offset;
  LILY_UNROLL
  for (uint s = 1; s < kMaxSegments; ++s) {
    begin += (p.segment_rows[s - 1] + rows_each - 1) / rows_each;
    out += p.segment_rows[s - 1];
    const bool further = s < p.num_segments && group >= begin;
    found.matrix.weight = further ? segments.matrices[s].weight : found.matrix.weight;
    found.matrix.scales = further ? segments.matrices[s].scales : found.matrix.scales;
    found.matrix.biases = further ? segments.matrices[s].biases : found.matrix.biases;
    found.first = further ? (group - begin) * rows_each : found.first;
    found.rows = further ? p.segment_rows[s] : found.rows;
    found.out = further ? out : found.out;
  }
  return found;
}

// y[n] (+)= W[n] . x, with x normed where there is a gain.
template <class S, class X, uint TILES, uint STEPS, bool NORM, bool ADD>
inline void linear_digits(device const X* x, device const float* gain, device float* y,
                          thread const Segments& segments, constant LinearParams& p,
                          threadgroup Sixteen* memory, threadgroup float* partial, uint group,
                          uint thread_index, uint lane, uint simdgroup) {
  typedef DigitGemv<S, TILES, STEPS, kDigitSimdgroups> Gemv;
  const SegmentRows<S> rows = rows_of_group<S>(segments, p, group, Gemv::kRows);
  const uint row = rows.first + thread_index;
  const bool writes = thread_index < Gemv::kRows && row < rows.rows;
  RowOfX<X, NORM> source{x, gain, {}};
  Gemv gemv;
  gemv.begin(memory, partial, p.cols, lane, simdgroup);
  gemv.load_codes(rows);
  gemv.load_gain(source);
  LILY_WAIT_FOR_STEP();
  device float* to = y + rows.out + row;
  const float before = ADD && writes ? *to : 0.0f;
  gemv.stage(source);
  const float total = gemv.multiply(thread_index);
  if (writes) *to = before + (NORM ? total * gemv.rms_factor(p.cols, p.eps) : total);
}

#define LILY_DIGIT_ARRAYS(S, TILES, STEPS)                                                    \
  LILY_THREADGROUP(Sixteen, memory, (DigitGemv<S, TILES, STEPS, kDigitSimdgroups>::kMemory)); \
  LILY_THREADGROUP(float, partial, (DigitGemv<S, TILES, STEPS, kDigitSimdgroups>::kPartial));

template <class S, class X, uint TILES, uint STEPS>
[[kernel]] void linear_gemv(device const X* x [[buffer(0)]], device float* y [[buffer(1)]],
                            LILY_SEGMENT(0, 2), LILY_SEGMENT(1, 5), LILY_SEGMENT(2, 8),
                            LILY_SEGMENT(3, 11), constant LinearParams& p [[buffer(14)]],
                            LILY_PLACE) {
  LILY_DIGIT_ARRAYS(S, TILES, STEPS)
  const Segments segments{{LILY_STORED(0), LILY_STORED(1), LILY_STORED(2), LILY_STORED(3)}};
  linear_digits<S, X, TILES, STEPS, false, false>(x, nullptr, y, segments, p, memory, partial,
                                                  group.x, thread_index, lane, simdgroup);
}

template <class S, class X, uint TILES, uint STEPS>
[[kernel]] void linear_gemv_add(device const X* x [[buffer(0)]], device float* y [[buffer(1)]],
                                LILY_SEGMENT(0, 2), constant LinearParams& p [[buffer(5)]],
                                LILY_PLACE) {
  LILY_DIGIT_ARRAYS(S, TILES, STEPS)
  const Segments segments{{LILY_STORED(0), LILY_STORED(0), LILY_STORED(0), LILY_STORED(0)}};
  linear_digits<S, X, TILES, STEPS, false, true>(x, nullptr, y, segments, p, memory, partial,
                                                 group.x, thread_index, lane, simdgroup);
}

template <class S, uint TILES, uint STEPS>
[[kernel]] void linear_gemv_norm(device const float* x [[buffer(0)]],
                                 device const float* gain [[buffer(1)]],
                                 device float* y [[buffer(2)]], LILY_SEGMENT(0, 3),
                                 LILY_SEGMENT(1, 6), LILY_SEGMENT(2, 9), LILY_SEGMENT(3, 12),
                                 constant LinearParams& p [[buffer(15)]], LILY_PLACE) {
  LILY_DIGIT_ARRAYS(S, TILES, STEPS)
  const Segments segments{{LILY_STORED(0), LILY_STORED(1), LILY_STORED(2), LILY_STORED(3)}};
  linear_digits<S, float, TILES, STEPS, true, false>(x, gain, y, segments, p, memory, partial,
                                                     group.x, thread_index, lane, simdgroup);
}

// Rows of a threadgroup, columns of a simdgroup: the host's table (src/ops/tiles.cpp) says when.
#define LILY_DIGITS(w, S, tile, groups, TILES, STEPS)                                              \
  LILY_EARLY_KERNEL(linear_gemv_##w##_##tile, 256, groups, linear_gemv<S, float, TILES, STEPS>)    \
  LILY_EARLY_KERNEL(linear_gemv_##w##_bf16_##tile, 256, groups,                                    \
                    linear_gemv<S, bfloat, TILES, STEPS>)                                          \
  LILY_EARLY_KERNEL(linear_gemv_##w##_f16_##tile, 256, groups, linear_gemv<S, half, TILES, STEPS>) \
  LILY_EARLY_KERNEL(linear_gemv_add_##w##_##tile, 256, groups,                                     \
                    linear_gemv_add<S, float, TILES, STEPS>)                                       \
  LILY_EARLY_KERNEL(linear_gemv_add_##w##_bf16_##tile, 256, groups,                                \
                    linear_gemv_add<S, bfloat, TILES, STEPS>)                                      \
  LILY_EARLY_KERNEL(linear_gemv_add_##w##_f16_##tile, 256, groups,                                 \
                    linear_gemv_add<S, half, TILES, STEPS>)                                        \
  LILY_EARLY_KERNEL(linear_gemv_norm_##w##_##tile, 256, groups, linear_gemv_norm<S, TILES, STEPS>)

LILY_DIGITS(q4, Q4<4>, i48x256, 2, 3, 2)
LILY_DIGITS(q4, Q4<4>, i32x256, 3, 2, 2)
LILY_DIGITS(q4, Q4<4>, i16x512, 2, 1, 4)

}  // namespace lily
