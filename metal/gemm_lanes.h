// The block product of gemm.h by matrix units whose lanes are known (lane_tile.h), of bf16 and
// quantised weights. Activations, codes and their factors are copied into threadgroup memory steps
// ahead; a simdgroup decodes the codes of its own rows of weights into registers, and multiplies
// them with as many rows of activations as registers hold sums for: each vector of activations that
// is read again costs as much as two products. Knows no layer.
//
// The order of K within a step is free, as long as both factors agree on it. So lane j of the four
// that share a row takes the 16 columns from 16 j on: whole words of codes, and two vectors of each
// row of activations.
#pragma once

#include "gemm.h"
#include "lane_memory.h"

namespace lily {

// Each simdgroup takes WM x WN of the results: bands of rows in turn, so that the rows of a short
// tile are shared by all. STAGES: steps that have room in threadgroup memory.
template <uint ROWS, uint COLUMNS, uint WM_, uint WN_, uint STAGES>
struct LaneShape {
  enum : uint {
    kRows = ROWS,
    kColumns = COLUMNS,
    WM = WM_,
    WN = WN_,
    kAcross = COLUMNS / WN_,
    kDown = ROWS / WM_,
    kThreads = kAcross * kDown * kLanes,
    kDepth = 64,   // columns of K at a time
    kEach = 16,    // of which a lane takes
    kParts = 2,    // of a lane's columns, of 8
    kStages = STAGES,
    kBand = WM_ < 16 ? 8 : 16,             // rows that are computed or not
    kVectors = kDepth / 8,                 // of a row of activations
    kCopies = ROWS * kVectors / kThreads,  // of vectors, by a thread
    kRowsApart = kThreads / kVectors,      // of a thread's copies
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
    return row * kVectors + (vector ^ row % 2);
  }
  // The row of the tile at which a simdgroup's 8 rows of matrix m begin.
  static constexpr uint row_of_matrix(uint m, uint down) {
    return (m * 8 / kBand * kDown + down) * kBand + m * 8 % kBand;
  }
  // Where row n of the weights lies: first the even rows of 16, then the odd ones, for those that
  // are read together are apart by two.
  static constexpr uint weight_place(uint n) { return n / 16 * 16 + n % 2 * 8 + n % 16 / 2; }
};

// How a stage lies in threadgroup memory, in Sixteens: activations, codes, factors.
template <class S, class Shape>
struct LaneStage {
  enum : uint {
    kChunks = S::kBits / 2,  // of 16 bytes of codes, of a row of weights
    kCodes = Shape::kRows * Shape::kVectors,
    kFactors = kCodes + Shape::kColumns * kChunks,
    kSize = kFactors + Shape::kColumns / 2,  // two scales and two biases a row
    kCodeCopies = Shape::kColumns * kChunks / Shape::kThreads,
    kFactorCopies = Shape::kColumns * 2 / Shape::kThreads
  };
};

typedef LaneShape<16, 128, 16, 32, 4> LaneTile16;
typedef LaneShape<32, 128, 32, 32, 4> LaneTile32;
typedef LaneShape<64, 128, 64, 32, 2> LaneTile64;
typedef LaneShape<128, 128, 64, 64, 2> LaneTile128;

template <class S, class A, uint ROWS, uint COLUMNS, uint WM, uint WN, uint STAGES>
struct GemmMemory<S, A, LaneShape<ROWS, COLUMNS, WM, WN, STAGES>> {
  typedef LaneShape<ROWS, COLUMNS, WM, WN, STAGES> Shape;
  enum : uint { kBytes = STAGES * LaneStage<S, Shape>::kSize * 16 };
};

inline uint both(uint pair, bool second) { return pick_bytes(pair, pair, second ? 0x3232 : 0x1010); }

// What a lane holds of kEach weights of a row, and how they become factors, 8 at a time.
template <class S>
struct LaneUnit {
  uint words[S::kBits / 2];
  uint scales, biases;  // twice each

  void decode(uint part, thread uint (&pairs)[4]) const thread {
    enum : uint { kPerWord = 32 / S::kBits };
    const float scale = as_type<float>(scales << 16), bias = as_type<float>(biases << 16);
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) {
      float value[2];
      LILY_UNROLL
      for (uint e = 0; e < 2; ++e) {
        const uint code = part * 8 + 2 * i + e;
        value[e] =
            fma(scale, S::value(words[code / kPerWord], code % kPerWord) - S::offset(0), bias);
      }
      pairs[i] = bfloat_pair(value[0], value[1]);
    }
  }
};

template <int W>
struct LaneUnit<Q4<W>> {
  uint words[2];
  uint scales, biases;

  // A byte's two codes come under the exponents of 128 and 16, where they read as 128 + code and
  // 16 + code: one instruction takes these off, and one applies scale and bias.
  void decode(uint part, thread uint (&pairs)[4]) const thread {
    const uint word = words[part], shifted = word >> 1;
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) {
      const uint moved = pick_bytes(word, shifted, i | (4 + i) << 8);
      const uint codes = and_or(moved, 0x0078000Fu, 0x41804300u);
      pairs[i] = fma_pairs(fma_pairs(codes, 0x3F803F80u, 0xC180C300u), scales, biases);
    }
  }
};

// The codes of kEach columns, the place'th of a stage.
inline void read_codes(thread uint (&words)[2], threadgroup const Sixteen* codes, uint place) {
  const uint2 loaded = ((threadgroup const uint2*)codes)[place];
  words[0] = loaded.x, words[1] = loaded.y;
}
inline void read_codes(thread uint (&words)[4], threadgroup const Sixteen* codes, uint place) {
  const uint4 loaded = codes[place];
  LILY_UNROLL
  for (uint w = 0; w < 4; ++w) words[w] = loaded[w];
}

// What a lane reads of a step's weights. `second`: its columns lie in the second of two groups.
template <class S, class Shape>
inline void load_weights(thread LaneUnit<S> (&units)[Shape::kUnits], threadgroup const Sixteen* stage,
                         uint column, bool second, uint lane) {
  typedef LaneStage<S, Shape> Stage;
  LILY_UNROLL
  for (uint i = 0; i < Shape::kUnits / 2; ++i) {
    LILY_UNROLL
    for (uint at = 0; at < 2; ++at) {
      thread LaneUnit<S>& unit = units[Shape::unit_of(i, at)];
      const uint row = column + i * 16 + at * 8 + lane / 4;  // weight_place
      read_codes(unit.words, stage + Stage::kCodes, row * 4 + lane % 4);
      const uint2 factors = ((threadgroup const uint2*)(stage + Stage::kFactors))[row];
      unit.scales = both(factors.x, second), unit.biases = both(factors.y, second);
    }
  }
}

// A thread's copies: one vector of every kRowsApart-th row of activations, and chunks of codes and
// pairs of factors of some rows of weights.
template <class S, class A, class Shape, class Source>
struct Copies {
  typedef LaneStage<S, Shape> Stage;
  device const A* base;
  uint offsets[Shape::kCopies];  // of rows, in elements / 4
  uint rows;                     // of the tile, that exist
  device const uchar* codes[Stage::kCodeCopies];
  device const bfloat* factors[Stage::kFactorCopies];

  void find(thread const Source& source, uint thread_index) thread {
    base = source.x, rows = min(source.rows(), uint(Shape::kRows));
    LILY_UNROLL
    for (uint i = 0; i < Shape::kCopies; ++i) {
      const uint m = i * Shape::kRowsApart + thread_index / Shape::kVectors;
      offsets[i] = uint((source.activation(m) - base) / 4);
    }
    LILY_UNROLL
    for (uint i = 0; i < Stage::kCodeCopies; ++i) {
      const uint chunk = i * Shape::kThreads + thread_index;
      codes[i] = source.weight(chunk / Stage::kChunks).weight + chunk % Stage::kChunks * 16;
    }
    LILY_UNROLL
    for (uint i = 0; i < Stage::kFactorCopies; ++i) {
      const uint pair = i * Shape::kThreads + thread_index;
      const Row row = source.weight(pair / 2);
      factors[i] = pair % 2 ? row.biases : row.scales;
    }
  }
  // pairs: of groups, before column k. Nothing is begun past the last column.
  void begin(threadgroup Sixteen* stage, uint k, uint cols, uint pairs, uint thread_index) thread {
    const uint vector = thread_index % Shape::kVectors;
    if (k < cols) {
      LILY_UNROLL
      for (uint i = 0; i < Shape::kCopies; ++i) {
        const uint m = i * Shape::kRowsApart + thread_index / Shape::kVectors;
        copy_ahead(stage + Shape::place(m, vector),
                   (device const Sixteen*)(base + ulong(offsets[i]) * 4 + k + vector * 8),
                   m < rows);
      }
      LILY_UNROLL
      for (uint i = 0; i < Stage::kCodeCopies; ++i) {
        const uint chunk = i * Shape::kThreads + thread_index;
        const uint row = Shape::weight_place(chunk / Stage::kChunks);
        copy_ahead(stage + Stage::kCodes + row * Stage::kChunks + chunk % Stage::kChunks,
                   (device const Sixteen*)(codes[i] + k / 8 * S::kBits), true);
      }
      LILY_UNROLL
      for (uint i = 0; i < Stage::kFactorCopies; ++i) {
        const uint pair = i * Shape::kThreads + thread_index;
        threadgroup uint* to = (threadgroup uint*)(stage + Stage::kFactors);
        copy_word_ahead(to + Shape::weight_place(pair / 2) * 2 + pair % 2,
                        (device const uint*)factors[i] + pairs);
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
  // One step. stage: its activations; bands: of this simdgroup, that exist.
  template <class S>
  void add(thread const LaneUnit<S> (&units)[Shape::kUnits], threadgroup const Sixteen* stage,
           uint down, uint bands, uint lane) thread {
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
      threadgroup const Sixteen* from =
          stage + Shape::place(lane / 4, lane % 4 * Shape::kParts + part);
      uint4 next = from[Shape::row_of_matrix(0, down) * Shape::kVectors];
      LILY_UNROLL
      for (uint m = 0; m < Shape::WM / 8; ++m) {
        const uint4 right = next;
        if (m + 1 < Shape::WM / 8) {
          next = from[Shape::row_of_matrix(m + 1, down) * Shape::kVectors];
        }
        if (m * 8 % Shape::kBand == 0 && m * 8 / Shape::kBand >= bands) break;
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
  // This simdgroup's rows of the tile, of which there are `rows`, to the sink.
  template <class Sink>
  void store(thread const Sink& sink, uint down, uint column, uint rows, uint lane) const thread {
    enum : uint { kHalf = Shape::WN / 32 };
    LILY_UNROLL
    for (uint m = 0; m < Shape::WM / 8; ++m) {
      LILY_UNROLL
      for (uint e = 0; e < 2; ++e) {
        const uint r = Shape::row_of_matrix(m, down) + lane % 4 * 2 + e;
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

template <class S, class A, uint ROWS, uint COLUMNS, uint WM, uint WN, uint STAGES, class Source,
          class Sink>
inline void gemm(LaneShape<ROWS, COLUMNS, WM, WN, STAGES>, thread const Source& source,
                 thread const Sink& sink, Stored matrix, threadgroup Sixteen* memory,
                 uint thread_index, uint lane, uint simdgroup) {
  typedef LaneShape<ROWS, COLUMNS, WM, WN, STAGES> Shape;
  enum : uint { kSize = LaneStage<S, Shape>::kSize, kAhead = STAGES - 1 };
  const uint down = Shape::kDown == 1 ? 0 : simdgroup / Shape::kAcross;
  const uint column = (Shape::kDown == 1 ? simdgroup : simdgroup % Shape::kAcross) * WN;
  const uint cols = matrix.cols;
  const uint group_bits = popcount(matrix.group_size - 1);  // of a column's number, within a group
  Copies<S, A, Shape, Source> copies;
  copies.find(source, thread_index);
  LILY_UNROLL
  for (uint s = 0; s < kAhead; ++s) {
    const uint k = s * Shape::kDepth;
    copies.begin(memory + s * kSize, k, cols, k >> group_bits >> 1, thread_index);
  }
  // A tile that is seldom short computes all of its rows.
  const uint there = (copies.rows + Shape::kBand - 1) / Shape::kBand;
  const uint bands = Source::kMayBeShort ? (there + Shape::kDown - 1 - down) / Shape::kDown
                                         : WM / Shape::kBand;
  LaneSums<Shape> sums;
  sums.clear();
  uint turn = 0, turn_ahead = kAhead;
  for (uint k = 0; k < cols; k += Shape::kDepth) {
    wait_for_copies<STAGES - 2>();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint ahead = k + kAhead * Shape::kDepth;
    copies.begin(memory + turn_ahead * kSize, ahead, cols, ahead >> group_bits >> 1, thread_index);
    threadgroup const Sixteen* stage = memory + turn * kSize;
    LaneUnit<S> units[Shape::kUnits];
    const uint group = (k + lane % 4 * Shape::kEach) >> group_bits;
    load_weights<S, Shape>(units, stage, column, group % 2 != 0, lane);
#ifdef LILY_DUAL
    if (bands == WM / Shape::kBand) {
      sums.add(units, stage, down, WM / Shape::kBand, lane);
    } else {
      sums.add(units, stage, down, bands, lane);
    }
#else
    sums.add(units, stage, down, bands, lane);
#endif
    turn = turn == kAhead ? 0 : turn + 1;
    turn_ahead = turn_ahead == kAhead ? 0 : turn_ahead + 1;
  }
  sums.store(sink, down, column, copies.rows, lane);
}

}  // namespace lily
