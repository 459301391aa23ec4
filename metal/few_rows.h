// Products of a few rows of activations (2 to 8: speculative verification, small batches) with
// stored weights: as the GEMV of weights.h, but each weight is loaded and decoded once for all
// rows. Matrix units would compute padding here. Knows no layer.
#pragma once

#include "weights.h"

namespace lily {

enum : uint {
  kFewRowsMax = 8,
  kFewSlab = 1024,                               // columns staged at a time, for every row
  kFewMemory = kFewRowsMax * kFewSlab * 2 / 16,  // Sixteens: activations of 2 bytes
  kFewWeightRows = 2                             // of a simdgroup
};

// Four neighbours, as floats.
inline float4 unpack(uint2 words, bfloat) {
  return float4(as_type<float>(words.x << 16), as_type<float>(words.x & 0xFFFF0000u),
                as_type<float>(words.y << 16), as_type<float>(words.y & 0xFFFF0000u));
}
inline float4 unpack(uint2 words, half) {
  return float4(as_type<half2>(words.x)[0], as_type<half2>(words.x)[1], as_type<half2>(words.y)[0],
                as_type<half2>(words.y)[1]);
}

// dot[r][m] += chunks[r] . x[m] for the lane's columns of one step. staged: row m at m * kFewSlab.
template <class S, class A, int M>
inline void multiply_few(thread const typename S::Chunk (&chunks)[kFewWeightRows],
                         threadgroup const A* staged, uint lane,
                         thread float (&acc)[kFewWeightRows][M]) {
  enum : uint { kPerWord = 32 / S::kBits };
  float dot[kFewWeightRows][M], sum[M], offsets[M];
  LILY_UNROLL
  for (int m = 0; m < M; ++m) {
    sum[m] = offsets[m] = 0.0f;
    LILY_UNROLL
    for (uint r = 0; r < kFewWeightRows; ++r) dot[r][m] = 0.0f;
  }
  LILY_UNROLL
  for (uint j = 0; j < S::kCodes / 4; ++j) {
    float4 w[kFewWeightRows];
    LILY_UNROLL
    for (uint r = 0; r < kFewWeightRows; ++r) {
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) {
        const uint code = 4 * j + e;
        w[r][e] = S::value(chunks[r].words[code / kPerWord], code % kPerWord);
      }
    }
    LILY_UNROLL
    for (int m = 0; m < M; ++m) {
      threadgroup const A* at = staged + m * kFewSlab + (j * kLanes + lane) * 4;
      const float4 x = unpack(*(threadgroup const uint2*)at, A());
      if (S::kQuantised) {
        const float even = x.x + x.z, odd = x.y + x.w;
        sum[m] += even + odd;
        offsets[m] = fma(S::offset(0), even, fma(S::offset(1), odd, offsets[m]));
      }
      LILY_UNROLL
      for (uint r = 0; r < kFewWeightRows; ++r) {
        LILY_UNROLL
        for (uint e = 0; e < 4; ++e) dot[r][m] = fma(x[e], w[r][e], dot[r][m]);
      }
    }
  }
  LILY_UNROLL
  for (uint r = 0; r < kFewWeightRows; ++r) {
    LILY_UNROLL
    for (int m = 0; m < M; ++m) {
      acc[r][m] += finish_chunk<S>(chunks[r], dot[r][m], sum[m], offsets[m],
                                   bool_constant<S::kQuantised != 0>());
    }
  }
}

// One slab of columns: staged rows times this simdgroup's rows of weights.
template <class S, class A, int M>
inline void few_slab(thread const Row (&rows)[kFewWeightRows], Stored matrix, uint first,
                     uint columns, threadgroup const A* slab, uint lane,
                     thread float (&acc)[kFewWeightRows][M]) {
  enum : uint { kStep = kLanes * S::kCodes };
  if (!loads_vectors<S>(matrix.cols)) {
    for (uint k = lane; k < columns; k += kLanes) {
      LILY_UNROLL
      for (uint r = 0; r < kFewWeightRows; ++r) {
        const float w = weight_at<S>(rows[r], first + k, matrix);
        LILY_UNROLL
        for (int m = 0; m < M; ++m) {
          acc[r][m] = fma(float(slab[m * kFewSlab + staged_place<S>(k)]), w, acc[r][m]);
        }
      }
    }
    return;
  }
  for (uint step = 0; step * kStep < columns; ++step) {
    const uint k = step * kStep + lane * S::kCodes;
    if (k >= columns) continue;
    typename S::Chunk chunks[kFewWeightRows];
    LILY_UNROLL
    for (uint r = 0; r < kFewWeightRows; ++r) {
      load_chunk<S>(chunks[r], rows[r], first + k, matrix.group_size);
    }
    multiply_few<S, A, M>(chunks, slab + step * kStep, lane, acc);
  }
}

// acc[r][m] = rows[r] . x[m] on every lane; rows of x past `count` repeat the last. Source as in
// gemm.h. memory: [kFewMemory]. All threads must call it.
template <class S, class A, int M, class Source>
inline void few_rows(thread const Row (&rows)[kFewWeightRows], Stored matrix,
                     thread const Source& source, uint count, threadgroup Sixteen* memory,
                     uint thread_index, uint lane, thread float (&acc)[kFewWeightRows][M]) {
  threadgroup A* slab = (threadgroup A*)memory;
  LILY_UNROLL
  for (uint r = 0; r < kFewWeightRows; ++r) {
    LILY_UNROLL
    for (int m = 0; m < M; ++m) acc[r][m] = 0.0f;
  }
  for (uint first = 0; first < matrix.cols; first += kFewSlab) {
    const uint columns = min(matrix.cols - first, uint(kFewSlab));
    if (first > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    LILY_UNROLL
    for (int m = 0; m < M; ++m) {
      device const A* x = source.activation(min(uint(m), count - 1)) + first;
      for (uint k = thread_index; k < columns; k += kGemvThreads) {
        slab[m * kFewSlab + staged_place<S>(k)] = x[k];
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    few_slab<S, A, M>(rows, matrix, first, columns, slab, lane, acc);
  }
  LILY_UNROLL
  for (uint r = 0; r < kFewWeightRows; ++r) {
    LILY_UNROLL
    for (int m = 0; m < M; ++m) acc[r][m] = simd_sum(acc[r][m]);
  }
}

}  // namespace lily
