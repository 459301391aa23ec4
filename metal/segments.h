// Several matrices that read the same x, as one: a table of segments says which matrix a row
// belongs to, so that no weights are copied together. Knows no kernel.
#pragma once

#include "weights.h"

namespace lily {

// The matrices of one launch, as bound: segments past num_segments have no memory.
struct Segments {
  Stored matrices[kMaxSegments];
};

// Row n of the segments, taken as one matrix; past the end, the last. Which matrix it is is chosen
// among registers: an index would put them all into memory.
template <class S>
inline Row segment_row(thread const Segments& segments, constant LinearParams& p, uint n) {
  Stored matrix = segments.matrices[0];
  uint first = 0, rows = p.segment_rows[0];
  LILY_UNROLL
  for (uint s = 1; s < kMaxSegments; ++s) {
    const bool further = s < p.num_segments && n >= first + rows;
    first = further ? first + rows : first;
    rows = further ? p.segment_rows[s] : rows;
    matrix.weight = further ? segments.matrices[s].weight : matrix.weight;
    matrix.scales = further ? segments.matrices[s].scales : matrix.scales;
    matrix.biases = further ? segments.matrices[s].biases : matrix.biases;
  }
  return row_of<S>(matrix, min(n - first, rows - 1));
}

inline uint total_rows(constant LinearParams& p) {
  uint total = 0;
  for (uint s = 0; s < p.num_segments; ++s) total += p.segment_rows[s];
  return total;
}

#define LILY_SEGMENT(n, b)                                                                       \
  device const uchar *weight##n [[buffer(b)]], device const bfloat *scales##n [[buffer(b + 1)]], \
      device const bfloat *biases##n [[buffer(b + 2)]]
#define LILY_STORED(n) {weight##n, scales##n, biases##n, p.cols, p.group_size}

}  // namespace lily
