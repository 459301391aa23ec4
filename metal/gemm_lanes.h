// The block product of gemm.h by matrix units whose lanes are known (lane_tile.h), of bf16 and
// quantised weights: activations pass through threadgroup memory, copied two steps ahead; weights
// go from device memory straight into the registers of the simdgroup that needs them, and become
// factors there. Knows no layer.
//
// The order of K within a step is free, as long as both factors agree on it. So lane j of the four
// that share a row takes the 16 columns from 16 j on: whole words of codes, and two vectors of each
// row of activations.
#pragma once

#include "gemm.h"
#include "lane_memory.h"

namespace lily {

// Each simdgroup takes WM x WN of the results, and of a step each lane UNIT columns of a row.
template <uint ROWS, uint COLUMNS, uint WM_, uint WN_, uint UNIT>
struct LaneShape {
  enum : uint {
    kRows = ROWS,
    kColumns = COLUMNS,
    WM = WM_,
    WN = WN_,
    kAcross = COLUMNS / WN_,
    kThreads = ROWS / WM_ * kAcross * kLanes,
    kDepth = 4 * UNIT,                     // columns of K at a time
    kStages = 3,                           // steps whose activations have room
    kStage = ROWS * kDepth,                // elements
    kVectors = kDepth / 8,                 // of a row of activations
    kCopies = ROWS * kVectors / kThreads,  // of vectors, by a thread
    kRowsApart = kThreads / kVectors,      // of a thread's copies
    kParts = UNIT / 8,                     // of a step, of 8 columns of each lane
    kUnits = WN_ / 8                       // rows of weights of a lane
  };
  // Units 2 n and 2 n + 1 are the upper and lower rows of matrix n. Of the i'th pair of rows, which
  // begins at row 16 i + 2 (lane / 4), this is the unit of row `at`: chosen so that a lane ends up
  // with pairs of neighbouring results.
  static constexpr uint unit_of(uint i, uint at) {
    return i < WN_ / 32 ? 4 * i + 2 * at : 4 * (i - WN_ / 32) + 2 * at + 1;
  }
  // Where a row's vector lies: so that lanes that read together meet no bank twice.
  static constexpr uint place(uint row, uint vector) {
    return row * kDepth + (vector ^ row % 2 ^ vector / 8 * 2) * 8;
  }
};

typedef LaneShape<16, 128, 16, 32, 32> LaneTile16;
typedef LaneShape<32, 128, 32, 32, 32> LaneTile32;
typedef LaneShape<64, 128, 64, 32, 16> LaneTile64;
typedef LaneShape<64, 128, 64, 32, 32> LaneTile64Deep;  // 48 KB of threadgroup memory
typedef LaneShape<128, 128, 128, 32, 16> LaneTile128;   // likewise

template <class A, uint ROWS, uint COLUMNS, uint WM, uint WN, uint UNIT>
struct GemmMemory<A, LaneShape<ROWS, COLUMNS, WM, WN, UNIT>> {
  typedef LaneShape<ROWS, COLUMNS, WM, WN, UNIT> Shape;
  enum : uint { kBytes = Shape::kStages * Shape::kStage * 2 };
};

// What a lane holds of UNIT weights of a row, and how they become factors, 8 at a time.
template <class S, uint UNIT>
struct LaneUnit {
  uint words[UNIT * S::kBits / 32];
  bfloat scale, bias;

  // g: the group of column k.
  void load(Row row, uint k, uint g) thread {
    LILY_UNROLL
    for (uint i = 0; i < UNIT * S::kBits / 128; ++i) {
      const uint4 loaded = ((device const uint4*)(row.weight + ulong(k) * S::kBits / 8))[i];
      LILY_UNROLL
      for (uint e = 0; e < 4; ++e) words[4 * i + e] = loaded[e];
    }
    scale = row.scales[g], bias = row.biases[g];
  }
  void decode(uint part, thread uint (&pairs)[4]) const thread {
    enum : uint { kPerWord = 32 / S::kBits };
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) {
      float value[2];
      LILY_UNROLL
      for (uint e = 0; e < 2; ++e) {
        const uint code = part * 8 + 2 * i + e;
        value[e] =
            fma(float(scale), S::value(words[code / kPerWord], code % kPerWord) - S::offset(0),
                float(bias));
      }
      pairs[i] = bfloat_pair(value[0], value[1]);
    }
  }
};

inline uint both(bfloat value) { return uint(as_type<ushort>(value)) * 0x10001u; }

template <int W, uint UNIT>
struct LaneUnit<Q4<W>, UNIT> {
  uint words[UNIT / 8];
  bfloat scale, bias;

  void load(Row row, uint k, uint g) thread {
    load_words(words, row.weight + k / 2);
    scale = row.scales[g], bias = row.biases[g];
  }
  // A byte's two codes come under the exponents of 128 and 16, where they read as 128 + code and
  // 16 + code: one instruction takes these off, and one applies scale and bias.
  void decode(uint part, thread uint (&pairs)[4]) const thread {
    const uint word = words[part], shifted = word >> 1;
    const uint scales = both(scale), biases = both(bias);
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) {
      const uint moved = pick_bytes(word, shifted, i | (4 + i) << 8);
      const uint codes = and_or(moved, 0x0078000Fu, 0x41804300u);
      pairs[i] = fma_pairs(fma_pairs(codes, 0x3F803F80u, 0xC180C300u), scales, biases);
    }
  }
};

// The rows of weights that a lane takes: pairs of neighbours, of which the last may lack its
// second.
template <class S, class Shape, uint UNIT>
struct LaneRows {
  Row first[Shape::kUnits / 2];
  uint apart[Shape::kUnits / 2];  // 1, or 0 where there is no second row: it is taken twice

  template <class Source>
  void find(thread const Source& source, uint column, uint lane) thread {
    LILY_UNROLL
    for (uint i = 0; i < Shape::kUnits / 2; ++i) {
      const uint n = column + i * 16 + lane / 4 * 2;
      first[i] = source.weight(n);
      apart[i] = source.weight(n + 1).weight != first[i].weight ? 1 : 0;
    }
  }
  void load(thread LaneUnit<S, UNIT> (&units)[Shape::kUnits], uint k, Stored matrix) thread {
    const uint groups = matrix.cols / matrix.group_size, g = k / matrix.group_size;
    const uint bytes = matrix.cols * S::kBits / 8;
    LILY_UNROLL
    for (uint i = 0; i < Shape::kUnits / 2; ++i) {
      const Row row = first[i];
      const Row next{row.weight + apart[i] * bytes, row.scales + apart[i] * groups,
                     row.biases + apart[i] * groups};
      units[Shape::unit_of(i, 0)].load(row, k, g);
      units[Shape::unit_of(i, 1)].load(next, k, g);
    }
  }
};

// A thread's copies of activations: one vector of every kRowsApart-th row of the tile.
template <class A, class Shape, class Source>
struct Copies {
  device const A* base;
  uint offsets[Shape::kCopies];  // of rows, in elements / 4
  uint rows;                     // of the tile, that exist

  void find(thread const Source& source, uint thread_index) thread {
    base = source.x, rows = min(source.rows(), uint(Shape::kRows));
    LILY_UNROLL
    for (uint i = 0; i < Shape::kCopies; ++i) {
      const uint m = i * Shape::kRowsApart + thread_index / Shape::kVectors;
      offsets[i] = uint((source.activation(m) - base) / 4);
    }
  }
  // Nothing is begun past the last column.
  void begin(threadgroup A* stage, uint k, uint cols, uint thread_index) thread {
    const uint vector = thread_index % Shape::kVectors;
    if (k < cols) {
      LILY_UNROLL
      for (uint i = 0; i < Shape::kCopies; ++i) {
        const uint m = i * Shape::kRowsApart + thread_index / Shape::kVectors;
        copy_ahead(stage + Shape::place(m, vector), base + ulong(offsets[i]) * 4 + k + vector * 8,
                   m < rows);
      }
    }
    close_copies();
  }
};

// A simdgroup's results: matrices of 16 rows of weights and 8 rows of activations.
template <class Shape>
struct LaneSums {
  float at[Shape::kUnits / 2][Shape::WM / 8][4];

  void clear() thread {
    LILY_UNROLL
    for (uint n = 0; n < Shape::kUnits / 2; ++n) {
      LILY_UNROLL
      for (uint m = 0; m < Shape::WM / 8; ++m) {
        LILY_UNROLL
        for (uint e = 0; e < 4; ++e) at[n][m][e] = 0.0f;
      }
    }
  }
  // One step. stage: its activations, from this simdgroup's first row on, of which `bands` times 16
  // exist.
  template <class S, class A, uint UNIT>
  void add(thread const LaneUnit<S, UNIT> (&units)[Shape::kUnits], threadgroup const A* stage,
           uint bands, uint lane) thread {
    LILY_UNROLL
    for (uint part = 0; part < Shape::kParts; ++part) {
      uint left[Shape::kUnits / 2][2][4];
      LILY_UNROLL
      for (uint u = 0; u < Shape::kUnits; ++u) {
        uint pairs[4];
        units[u].decode(part, pairs);
        LILY_UNROLL
        for (uint i = 0; i < 4; ++i) left[u / 2][i / 2][i % 2 * 2 + u % 2] = pairs[i];
      }
      threadgroup const A* from = stage + Shape::place(lane / 4, lane % 4 * Shape::kParts + part);
      LILY_UNROLL
      for (uint m = 0; m < Shape::WM / 8; ++m) {
        if (m / 2 >= bands) continue;
        const uint4 right = *(threadgroup const uint4*)(from + m * 8 * Shape::kDepth);
        LILY_UNROLL
        for (uint n = 0; n < Shape::kUnits / 2; ++n) {
          multiply_halves(at[n][m], left[n][0], right.x, right.y);
        }
        LILY_UNROLL
        for (uint n = 0; n < Shape::kUnits / 2; ++n) {
          multiply_halves(at[n][m], left[n][1], right.z, right.w);
        }
      }
    }
  }
  // Rows [row, row + WM) of the tile, of which there are `rows`, to the sink.
  template <class Sink>
  void store(thread const Sink& sink, uint row, uint column, uint rows, uint lane) const thread {
    enum : uint { kHalf = Shape::WN / 32 };
    LILY_UNROLL
    for (uint m = 0; m < Shape::WM / 8; ++m) {
      LILY_UNROLL
      for (uint e = 0; e < 2; ++e) {
        const uint r = row + m * 8 + lane % 4 * 2 + e;
        if (r >= rows) continue;
        Pairs<2 * kHalf> pairs;
        LILY_UNROLL
        for (uint n = 0; n < kHalf; ++n) {
          pairs.at[n] = float2(at[2 * n][m][e], at[2 * n + 1][m][e]);
          pairs.at[kHalf + n] = float2(at[2 * n][m][2 + e], at[2 * n + 1][m][2 + e]);
        }
        sink.store_pairs(r, column + lane / 4 * 2, pairs);
      }
    }
  }
};

template <class S, class A, uint ROWS, uint COLUMNS, uint WM, uint WN, uint UNIT, class Source,
          class Sink>
inline void gemm(LaneShape<ROWS, COLUMNS, WM, WN, UNIT>, thread const Source& source,
                 thread const Sink& sink, Stored matrix, threadgroup Sixteen* memory,
                 uint thread_index, uint lane, uint simdgroup) {
  typedef LaneShape<ROWS, COLUMNS, WM, WN, UNIT> Shape;
  threadgroup A* stages = (threadgroup A*)memory;
  const uint row = ROWS == WM ? 0 : simdgroup / Shape::kAcross * WM;
  const uint column = (ROWS == WM ? simdgroup : simdgroup % Shape::kAcross) * WN;
  const uint mine = lane % 4 * UNIT;  // columns of a step
  Copies<A, Shape, Source> copies;
  copies.find(source, thread_index);
  LaneRows<S, Shape, UNIT> weights;
  LaneUnit<S, UNIT> units[Shape::kUnits];
  weights.find(source, column, lane);
  weights.load(units, mine, matrix);
  copies.begin(stages, 0, matrix.cols, thread_index);
  copies.begin(stages + Shape::kStage, Shape::kDepth, matrix.cols, thread_index);
  // A tile that is seldom short computes all of its rows.
  const uint bands = Source::kMayBeShort ? (max(copies.rows, row) - row + 15) / 16 : WM / 16;
  LaneSums<Shape> sums;
  sums.clear();
  uint turn = 0;
  for (uint k = 0; k < matrix.cols; k += Shape::kDepth) {
    wait_for_copies<1>();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint ahead = turn == 0 ? 2 : turn - 1;
    copies.begin(stages + ahead * Shape::kStage, k + 2 * Shape::kDepth, matrix.cols, thread_index);
    LaneUnit<S, UNIT> next[Shape::kUnits];
    weights.load(next, min(k + Shape::kDepth, matrix.cols - Shape::kDepth) + mine, matrix);
    sums.add(units, stages + turn * Shape::kStage + row * Shape::kDepth, bands, lane);
    LILY_UNROLL
    for (uint u = 0; u < Shape::kUnits; ++u) units[u] = next[u];
    turn = turn == 2 ? 0 : turn + 1;
  }
  sums.store(sink, row, column, copies.rows, lane);
}

}  // namespace lily
