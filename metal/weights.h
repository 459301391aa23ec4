// How a stored row of weights is read and multiplied: affine 4-bit and 8-bit (MLX), bf16 and f32;
// and the GEMV that all decode kernels share. Knows no layer.
//
// A simdgroup owns R rows. Each lane takes kCodes neighbouring columns at a time, so that a load is
// 16 bytes a lane; the activations lie in threadgroup memory in the order in which lanes read them,
// so that they come without bank conflicts.
#pragma once

#include "kernel.h"

namespace lily {

// A matrix as bound: any storage.
struct Stored {
  device const uchar* weight;
  device const bfloat* scales;
  device const bfloat* biases;
  uint cols;
  uint group_size;
};

// Where one row begins.
struct Row {
  device const uchar* weight;
  device const bfloat* scales;
  device const bfloat* biases;
};

// --- Storages. Chunk: what one lane loads of one row; dot: its product with kCodes activations.

// Codes become floats without a conversion: a code moved to the top of the mantissa of 16.0 reads
// as 16 + code; four bits further down, under the exponent of 256.0, as 256 + code. So one shift
// brings two codes of a word into place. The 16 leaves with the bias, s q + b = s (16 + q) + (b -
// 16 s); a 256 would cost too many bits of the sums and is taken off at once. W words a lane: 4
// where rows are long, 2 where 32 lanes of 32 codes would leave lanes idle.
template <int W>
struct Q4 {
  enum : uint { kCodes = 8 * W, kBits = 4, kQuantised = 1 };
  struct Chunk {
    uint words[W];
    float scale, bias;
  };
  static inline float value(uint word, int i) {
    const int shift = 19 - 4 * (i | 1);
    const uint moved = shift >= 0 ? word << shift : word >> -shift;
    return i % 2 ? as_type<float>((moved & 0x00780000u) | 0x41800000u)
                 : as_type<float>((moved & 0x00078000u) | 0x43800000u) - 256.0f;
  }
  static inline float offset(int i) { return i % 2 ? 16.0f : 0.0f; }
};
struct Q8 {
  enum : uint { kCodes = 16, kBits = 8, kQuantised = 1 };
  struct Chunk {
    uint words[4];
    float scale, bias;
  };
  static inline float value(uint word, int i) {
    const int shift = 15 - 8 * i;
    const uint moved = shift >= 0 ? word << shift : word >> -shift;
    return as_type<float>((moved & 0x007F8000u) | 0x43800000u);
  }
  static inline float offset(int) { return 256.0f; }
};
struct Bf16 {
  enum : uint { kCodes = 8, kBits = 16, kQuantised = 0 };
  struct Chunk {
    uint words[4];
  };
  static inline float value(uint word, int i) {
    return as_type<float>(i == 0 ? word << 16 : word & 0xFFFF0000u);
  }
  static inline float offset(int) { return 0.0f; }
};
struct F32 {
  enum : uint { kCodes = 4, kBits = 32, kQuantised = 0 };
  struct Chunk {
    uint words[4];
  };
  static inline float value(uint word, int) { return as_type<float>(word); }
  static inline float offset(int) { return 0.0f; }
};

template <class S>
inline ulong row_bytes(uint cols) {
  return ulong(cols) * S::kBits / 8;
}

template <class S>
inline Row row_of(Stored matrix, ulong row) {
  const ulong groups = S::kQuantised ? matrix.cols / matrix.group_size : 0;
  return {matrix.weight + row * row_bytes<S>(matrix.cols), matrix.scales + row * groups,
          matrix.biases + row * groups};
}

// Whole words of a row can be loaded as vectors; otherwise columns are taken one by one.
template <class S>
inline bool loads_vectors(uint cols) {
  return S::kQuantised || cols % S::kCodes == 0;
}

template <int W>
inline void load_words(thread uint (&words)[W], device const uchar* from) {
  if (W == 2) {
    const uint2 loaded = *(device const uint2*)from;
    words[0] = loaded.x, words[1] = loaded.y;
  } else {
    const uint4 loaded = *(device const uint4*)from;
    words[0] = loaded.x, words[1] = loaded.y, words[W - 2] = loaded.z, words[W - 1] = loaded.w;
  }
}

template <class Chunk>
inline void load_factors(thread Chunk& chunk, Row row, uint group, bool_constant<true>) {
  chunk.scale = float(row.scales[group]);
  chunk.bias = float(row.biases[group]);
}
template <class Chunk>
inline void load_factors(thread Chunk&, Row, uint, bool_constant<false>) {}

template <class S>
inline void load_chunk(thread typename S::Chunk& chunk, Row row, uint column, uint group_size) {
  load_words(chunk.words, row.weight + ulong(column) * S::kBits / 8);
  load_factors(chunk, row, S::kQuantised ? column / group_size : 0,
               bool_constant<S::kQuantised != 0>());
}

// The weight of column k alone.
template <class S>
inline float affine(Row row, uint k, uint group_size, float code, bool_constant<true>) {
  const uint g = k / group_size;
  return fma(float(row.scales[g]), code - S::offset(0), float(row.biases[g]));
}
template <class S>
inline float affine(Row, uint, uint, float value, bool_constant<false>) {
  return value;
}
template <class S>
inline float weight_at(Row row, uint k, Stored matrix) {
  if (S::kBits == 16) return float(((device const bfloat*)row.weight)[k]);  // rows of odd length
  const uint per_word = 32 / S::kBits;
  const uint word = ((device const uint*)row.weight)[k / per_word];
  const uint code = S::kBits == 32 ? word : word >> (k % per_word * S::kBits);
  return affine<S>(row, k, matrix.group_size, S::value(code, 0),
                   bool_constant<S::kQuantised != 0>());
}

// Where activation `k` lies in the staged order of storage S: [step][float4 of the chunk][lane].
template <class S>
inline uint staged_place(uint k) {
  const uint per_step = kLanes * S::kCodes;
  const uint within = k % per_step;
  const uint in_lane = within / S::kCodes, in_chunk = within % S::kCodes;
  return k / per_step * per_step + (in_chunk / 4 * kLanes + in_lane) * 4 + in_chunk % 4;
}

// acc[r] += chunks[r] . x, where x are the lane's kCodes activations of this step in staged order.
// Both the bias and the offsets of the codes take a sum of activations, which all rows share.
template <class S>
inline float finish_chunk(thread const typename S::Chunk& chunk, float dot, float sum,
                          float offsets, bool_constant<true>) {
  return fma(chunk.scale, dot - offsets, chunk.bias * sum);
}
template <class S>
inline float finish_chunk(thread const typename S::Chunk&, float dot, float, float,
                          bool_constant<false>) {
  return dot;
}

template <class S, int R>
inline void multiply_chunks(thread const typename S::Chunk (&chunks)[R],
                            threadgroup const float* staged, uint lane, thread float (&acc)[R]) {
  enum : uint { kPerWord = 32 / S::kBits };
  float dot[R], sum = 0.0f, offsets = 0.0f;
  LILY_UNROLL
  for (int r = 0; r < R; ++r) dot[r] = 0.0f;
  LILY_UNROLL
  for (uint j = 0; j < S::kCodes / 4; ++j) {
    const float4 x = *(threadgroup const float4*)(staged + (j * kLanes + lane) * 4);
    if (S::kQuantised) {
      const float even = x.x + x.z, odd = x.y + x.w;
      sum += even + odd;
      offsets = fma(S::offset(0), even, fma(S::offset(1), odd, offsets));
    }
    LILY_UNROLL
    for (int r = 0; r < R; ++r) {
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) {
        const uint code = 4 * j + e;
        dot[r] = fma(x[e], S::value(chunks[r].words[code / kPerWord], code % kPerWord), dot[r]);
      }
    }
  }
  LILY_UNROLL
  for (int r = 0; r < R; ++r) {
    acc[r] += finish_chunk<S>(chunks[r], dot[r], sum, offsets, bool_constant<S::kQuantised != 0>());
  }
}

// --- The GEMV of a threadgroup

enum : uint {
  kGemvThreads = 256,
  kGemvSimdgroups = kGemvThreads / kLanes,
  kSlabColumns = 4096  // activations staged at a time: 16 KB
};

// Threadgroup memory of one GEMV.
struct GemvMemory {
  threadgroup float* slab;     // [kSlabColumns]
  threadgroup float* partial;  // [kGemvSimdgroups * (R + 1)]
};

// What a simdgroup holds of its next step of columns: it can be loaded before the activations are
// there, so that both latencies pass at once. (Two steps cost more registers than they gain.)
template <class S, int R>
struct Ahead {
  typename S::Chunk chunks[R];

  void load(thread const Row (&rows)[R], Stored matrix, uint first_column, uint columns, uint step,
            uint lane) thread {
    const uint k = (step * kLanes + lane) * S::kCodes;
    if (k >= columns || !loads_vectors<S>(matrix.cols)) return;
    LILY_UNROLL
    for (int r = 0; r < R; ++r) {
      load_chunk<S>(chunks[r], rows[r], first_column + k, matrix.group_size);
    }
  }
};

// The simdgroup's share of a slab: steps split, split + SPLITS, ..., the first of them loaded.
template <class S, int R, int SPLITS>
inline void multiply_slab(thread const Row (&rows)[R], Stored matrix, uint first_column,
                          uint columns, threadgroup const float* slab, uint split, uint lane,
                          thread Ahead<S, R>& ahead, thread float (&acc)[R]) {
  enum : uint { kStep = kLanes * S::kCodes };
  if (!loads_vectors<S>(matrix.cols)) {
    for (uint k = split * kLanes + lane; k < columns; k += SPLITS * kLanes) {
      const float x = slab[staged_place<S>(k)];
      LILY_UNROLL
      for (int r = 0; r < R; ++r)
        acc[r] = fma(x, weight_at<S>(rows[r], first_column + k, matrix), acc[r]);
    }
    return;
  }
  for (uint step = split; step * kStep < columns; step += SPLITS) {
    if (step != split) ahead.load(rows, matrix, first_column, columns, step, lane);
    if (step * kStep + lane * S::kCodes >= columns) continue;
    multiply_chunks<S, R>(ahead.chunks, slab + step * kStep, lane, acc);
  }
}

enum : uint { kStageLoads = 2 };  // of four activations, that a thread has under way together

inline float4 load_four_of(device const float* x) { return *(device const float4*)x; }
inline float4 load_four_of(device const bfloat* x) {
  const bfloat4 four = *(device const bfloat4*)x;
  return float4(float(four.x), float(four.y), float(four.z), float(four.w));
}
inline float4 load_four_of(device const half* x) {
  const half4 four = *(device const half4*)x;
  return float4(float(four.x), float(four.y), float(four.z), float(four.w));
}

// x (times gain, where there is one) into the slab; returns this thread's part of the sum of x^2.
template <class S, class X>
inline float stage(device const X* x, device const float* gain, uint columns,
                   threadgroup float* slab, uint thread_index) {
  float squares = 0.0f;
  if (columns % 4 != 0) {
    for (uint k = thread_index; k < columns; k += kGemvThreads) {
      const float value = float(x[k]);
      squares = fma(value, value, squares);
      slab[staged_place<S>(k)] = gain ? value * gain[k] : value;
    }
    return squares;
  }
  for (uint first = 0; first < columns; first += kStageLoads * kGemvThreads * 4) {
    float4 values[kStageLoads], gains[kStageLoads];
    LILY_UNROLL
    for (uint i = 0; i < kStageLoads; ++i) {
      const uint k = first + (i * kGemvThreads + thread_index) * 4;
      if (k >= columns) continue;
      values[i] = load_four_of(x + k);
      gains[i] = gain ? *(device const float4*)(gain + k) : float4(1.0f);
    }
    LILY_UNROLL
    for (uint i = 0; i < kStageLoads; ++i) {
      const uint k = first + (i * kGemvThreads + thread_index) * 4;
      if (k >= columns) continue;
      squares += dot(values[i], values[i]);
      *(threadgroup float4*)(slab + staged_place<S>(k)) = values[i] * gains[i];
    }
  }
  return squares;
}

// The rest of gemv(), once the first slab is staged (its sum of squares in `squares`) and the first
// weights are under way.
template <class S, int R, int SPLITS, class X>
inline void gemv_staged(thread const Row (&rows)[R], Stored matrix, device const X* x,
                        device const float* gain, float eps, GemvMemory memory, uint thread_index,
                        uint lane, uint simdgroup, thread Ahead<S, R>& ahead, float squares,
                        thread float (&acc)[R]) {
  const uint split = simdgroup % SPLITS;
  LILY_UNROLL
  for (int r = 0; r < R; ++r) acc[r] = 0.0f;
  for (uint first = 0; first < matrix.cols; first += kSlabColumns) {
    const uint columns = min(matrix.cols - first, uint(kSlabColumns));
    if (first > 0) {
      ahead.load(rows, matrix, first, columns, split, lane);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      squares +=
          stage<S>(x + first, gain ? gain + first : gain, columns, memory.slab, thread_index);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_slab<S, R, SPLITS>(rows, matrix, first, columns, memory.slab, split, lane, ahead, acc);
  }
  LILY_UNROLL
  for (int r = 0; r < R; ++r) acc[r] = simd_sum(acc[r]);
  if (SPLITS == 1 && !gain) return;
  squares = simd_sum(squares);
  if (lane == 0) {
    threadgroup float* mine = memory.partial + simdgroup * (R + 1);
    LILY_UNROLL
    for (int r = 0; r < R; ++r) mine[r] = acc[r];
    mine[R] = squares;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float factor = 1.0f;
  if (gain) {
    float total = 0.0f;
    for (uint s = 0; s < kGemvSimdgroups; ++s) total += memory.partial[s * (R + 1) + R];
    factor = precise::rsqrt(total / float(matrix.cols) + eps);
  }
  LILY_UNROLL
  for (int r = 0; r < R; ++r) {
    float total = 0.0f;
    LILY_UNROLL
    for (uint s = 0; s < SPLITS; ++s) {
      total += memory.partial[(simdgroup - split + s) * (R + 1) + r];
    }
    acc[r] = total * factor;
  }
}

// acc[r] = rows[r] . x on every lane of the simdgroups with split 0 (other splits: undefined); with
// a gain, of rms_norm(x) * gain, whose factor 1 / rms leaves the sum. All threads must call it.
template <class S, int R, int SPLITS, class X>
inline void gemv(thread const Row (&rows)[R], Stored matrix, device const X* x,
                 device const float* gain, float eps, GemvMemory memory, uint thread_index,
                 uint lane, uint simdgroup, thread float (&acc)[R]) {
  const uint columns = min(matrix.cols, uint(kSlabColumns));
  Ahead<S, R> ahead;
  ahead.load(rows, matrix, 0, columns, simdgroup % SPLITS, lane);
  const float squares = stage<S>(x, gain, columns, memory.slab, thread_index);
  gemv_staged<S, R, SPLITS>(rows, matrix, x, gain, eps, memory, thread_index, lane, simdgroup,
                            ahead, squares, acc);
}

}  // namespace lily
