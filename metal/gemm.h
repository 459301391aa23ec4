// The block product of prefill: rows of activations times rows of stored weights, in tiles of
// ROWS x COLUMNS by a threadgroup, with weights decoded to the type of the activations on their way
// into threadgroup memory. Dense and grouped products differ only in where rows come from (Source)
// and where results go (Sink). Knows no layer.
//
//   Source: device const A* activation(uint m)   row m of the tile, or any readable row past the
//   end
//           Row weight(uint n)                   row n of the tile, likewise
//   Sink:   void store(uint m, uint n, threadgroup const float* row, uint lane)
//           gets WN neighbouring results of row m, from column n of the tile on
//           Where lanes are known (gemm_lanes.h), instead: uint place(uint m), where row m goes,
//           and void store_pairs(uint place, uint n, thread const Pairs<BLOCKS>& pairs)
#pragma once

#include "tile.h"
#include "weights.h"

namespace lily {

// Shape of a tile, and how its simdgroups share it: each takes WM x WN of the results.
template <uint ROWS, uint COLUMNS, uint WM_, uint WN_>
struct TileShape {
  enum : uint {
    kRows = ROWS,
    kColumns = COLUMNS,
    WM = WM_,
    WN = WN_,
    kAcross = COLUMNS / WN_,
    kSimdgroups = ROWS / WM_ * kAcross,
    kThreads = kSimdgroups * kLanes,
    kDepth = 32,            // columns of K at a time
    kPitch = kDepth + 8,    // elements between staged rows: ldmatrix then meets no bank conflict
    kUnit = 16,             // weights that a thread decodes at once
    kPatchPitch = WN_ + 4,  // floats between rows of a simdgroup's patch of results
    kPatch = kTileRows * kPatchPitch
  };
};

typedef TileShape<32, 64, 16, 32> SmallTile;
typedef TileShape<64, 64, 32, 32> WideTile;

// Threadgroup memory of a block product. The patches lie over the staged factors, which nobody
// reads any more when results are stored.
template <class S, class A, class Shape>
struct GemmMemory {
  enum : uint {
    kFactors = (Shape::kRows + Shape::kColumns) * Shape::kPitch,  // of type A
    kBytes = 2 * kFactors * 2 > Shape::kSimdgroups* Shape::kPatch * 4
        ? 2 * kFactors * 2
        : Shape::kSimdgroups * Shape::kPatch * 4
  };
};

// Results of a row that one lane holds: pairs of neighbours, 16 columns apart.
template <uint BLOCKS>
struct Pairs {
  float2 at[BLOCKS];
};

// Eight neighbours of a row, from column k; zero past the row's end. Rows whose length is no
// multiple of 8 are not aligned for vector loads.
template <class A>
inline uint4 load_eight(device const A* row, uint k, uint cols) {
  if (cols % 8 == 0) {
    return k < cols ? *(device const uint4*)(row + k) : uint4(0u);
  }
  uint words[4];
  LILY_UNROLL
  for (uint i = 0; i < 4; ++i) {
    const uint at = k + 2 * i;
    const uint low = at < cols ? uint(as_type<ushort>(row[at])) : 0u;
    const uint high = at + 1 < cols ? uint(as_type<ushort>(row[at + 1])) : 0u;
    words[i] = low | high << 16;
  }
  return uint4(words[0], words[1], words[2], words[3]);
}

// What a thread holds of kUnit weights before it decodes them.
template <class S>
struct WeightUnit {
  uint words[S::kBits / 2];  // 16 * kBits / 32
  float scale, bias;
};

template <class S>
inline void load_unit(thread WeightUnit<S>& unit, Row row, uint k, Stored matrix) {
  if (S::kQuantised) {
    LILY_UNROLL
    for (uint i = 0; i < S::kBits / 2; ++i) {
      unit.words[i] =
          k < matrix.cols ? ((device const uint*)(row.weight + ulong(k) * S::kBits / 8))[i] : 0u;
    }
    const uint g = min(k, matrix.cols - 1) / matrix.group_size;
    unit.scale = k < matrix.cols ? float(row.scales[g]) : 0.0f;
    unit.bias = k < matrix.cols ? float(row.biases[g]) : 0.0f;
    return;
  }
  if (matrix.cols % 8 == 0) {
    LILY_UNROLL
    for (uint i = 0; i < S::kBits / 8; ++i) {  // vectors of 16 bytes
      const uint at = k + i * S::kCodes;
      const uint4 loaded = at < matrix.cols
                               ? *(device const uint4*)(row.weight + ulong(at) * S::kBits / 8)
                               : uint4(0u);
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) unit.words[(4 * i + e) % (S::kBits / 2)] = loaded[e];
    }
    return;
  }
  LILY_UNROLL
  for (uint i = 0; i < 16; ++i) {
    const uint at = k + i;
    if (S::kBits == 16) {
      const uint half_word = at < matrix.cols ? uint(((device const ushort*)row.weight)[at]) : 0u;
      const uint word = i / 2 % (S::kBits / 2);
      unit.words[word] = i % 2 == 0 ? half_word : unit.words[word] | half_word << 16;
    } else {
      unit.words[i % (S::kBits / 2)] = at < matrix.cols ? ((device const uint*)row.weight)[at] : 0u;
    }
  }
}

template <class S, class A>
inline void decode_unit(thread const WeightUnit<S>& unit, threadgroup A* to) {
  enum : uint { kPerWord = 32 / S::kBits };
  uint words[8];
  LILY_UNROLL
  for (uint i = 0; i < 16; i += 2) {
    A pair[2];
    LILY_UNROLL
    for (uint e = 0; e < 2; ++e) {
      const uint code = i + e;
      float value = S::value(unit.words[code / kPerWord], code % kPerWord);
      if (S::kQuantised) value = fma(unit.scale, value - S::offset(code), unit.bias);
      pair[e] = A(value);
    }
    words[i / 2] = uint(as_type<ushort>(pair[0])) | uint(as_type<ushort>(pair[1])) << 16;
  }
  *(threadgroup uint4*)to = uint4(words[0], words[1], words[2], words[3]);
  *(threadgroup uint4*)(to + 8) = uint4(words[4], words[5], words[6], words[7]);
}

template <class S, class A, class Shape, class Source>
struct Gemm {
  enum : uint {
    kActivationLoads = Shape::kRows * Shape::kDepth / 8 / Shape::kThreads,
    kUnits = Shape::kColumns * Shape::kDepth / Shape::kUnit / Shape::kThreads
  };
  // Where this thread's loads come from: found once, because a row may be named by memory.
  device const A* from[kActivationLoads];
  Row rows[kUnits];
  uint4 activations[kActivationLoads];
  WeightUnit<S> units[kUnits];

  void find(thread const Source& source, uint thread_index) thread {
    LILY_UNROLL
    for (uint i = 0; i < kActivationLoads; ++i) {
      from[i] = source.activation((i * Shape::kThreads + thread_index) / (Shape::kDepth / 8));
    }
    LILY_UNROLL
    for (uint i = 0; i < kUnits; ++i) {
      rows[i] = source.weight((i * Shape::kThreads + thread_index) / 2);
    }
  }
  void fetch(Stored matrix, uint k, uint thread_index) thread {
    LILY_UNROLL
    for (uint i = 0; i < kActivationLoads; ++i) {
      const uint at = i * Shape::kThreads + thread_index;
      activations[i] = load_eight(from[i], k + at % (Shape::kDepth / 8) * 8, matrix.cols);
    }
    LILY_UNROLL
    for (uint i = 0; i < kUnits; ++i) {
      const uint at = i * Shape::kThreads + thread_index;
      load_unit<S>(units[i], rows[i], k + at % 2 * Shape::kUnit, matrix);
    }
  }
  void stage(threadgroup A* factors, uint thread_index) thread {
    LILY_UNROLL
    for (uint i = 0; i < kActivationLoads; ++i) {
      const uint at = i * Shape::kThreads + thread_index;
      *(threadgroup uint4*)(factors + at / (Shape::kDepth / 8) * Shape::kPitch +
                            at % (Shape::kDepth / 8) * 8) = activations[i];
    }
    LILY_UNROLL
    for (uint i = 0; i < kUnits; ++i) {
      const uint at = i * Shape::kThreads + thread_index;
      decode_unit<S, A>(units[i],
                        factors + (Shape::kRows + at / 2) * Shape::kPitch + at % 2 * Shape::kUnit);
    }
  }
};

// The whole product of a tile. memory: GemmMemory<A, Shape>::kBytes, aligned to 16 bytes. The next
// step's loads are under way while this step's factors are multiplied; two halves of threadgroup
// memory take turns, so that a step needs one barrier.
template <class S, class A, uint ROWS, uint COLUMNS, uint WM, uint WN, class Source, class Sink>
inline void gemm(TileShape<ROWS, COLUMNS, WM, WN>, thread const Source& source,
                 thread const Sink& sink, Stored matrix, threadgroup Sixteen* memory,
                 uint thread_index, uint lane, uint simdgroup) {
  typedef TileShape<ROWS, COLUMNS, WM, WN> Shape;
  threadgroup A* factors = (threadgroup A*)memory;
  const uint row = simdgroup / Shape::kAcross * Shape::WM;
  const uint column = simdgroup % Shape::kAcross * Shape::WN;
  Sums<Shape::WM, Shape::WN> sums;
  sums.clear();
  Gemm<S, A, Shape, Source> step;
  step.find(source, thread_index);
  step.fetch(matrix, 0, thread_index);
  uint turn = 0;
  for (uint k = 0; k < matrix.cols; k += Shape::kDepth, turn ^= 1) {
    threadgroup A* mine = factors + turn * (Shape::kRows + Shape::kColumns) * Shape::kPitch;
    step.stage(mine, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (k + Shape::kDepth < matrix.cols) {
      step.fetch(matrix, k + Shape::kDepth, thread_index);
    }
    LILY_UNROLL
    for (uint depth = 0; depth < Shape::kDepth; depth += 16) {
      Left<A, Shape::WM, 16> left;
      left.load(mine + row * Shape::kPitch + depth, Shape::kPitch);
      multiply_nt<A, Shape::WM, Shape::WN, 16>(
          sums, left, mine + (Shape::kRows + column) * Shape::kPitch + depth, Shape::kPitch);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup float* patch = (threadgroup float*)memory + simdgroup * Shape::kPatch;
  LILY_UNROLL
  for (uint band = 0; band < Shape::WM / kTileRows; ++band) {
    sums.store_band(band, 0, Shape::WN, patch, Shape::kPatchPitch);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint m = 0; m < kTileRows; ++m) {
      sink.store(row + band * kTileRows + m, column, patch + m * Shape::kPatchPitch, lane);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}

}  // namespace lily
