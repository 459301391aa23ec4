// The block product of gemm.h by matrix units whose lanes are known (lane_tile.h), of bf16 and
// quantised weights. Activations, codes and their factors are copied into threadgroup memory steps
// ahead; a simdgroup decodes the codes of its own rows of weights into registers, and multiplies
// them with as many rows of activations as registers hold sums for: each vector of activations that
// is read again costs as much as two products. Knows no layer.
//
// The order of K within a step is free, as long as both factors agree on it. So lane j of the four
// that share a row takes EACH columns from EACH j on: whole words of codes, and whole vectors of
// each row of activations.
#pragma once

#include "gemm.h"
#include "lane_memory.h"

namespace lily {

// Each simdgroup takes all rows of WN columns of the results, and of a step each lane EACH columns
// of a row. STAGES: steps that have room in threadgroup memory.
template <uint ROWS, uint COLUMNS, uint WN_, uint EACH, uint STAGES>
struct LaneShape {
  enum : uint {
    kRows = ROWS,
    kColumns = COLUMNS,
    WN = WN_,
    kThreads = COLUMNS / WN_ * kLanes,
    kEach = EACH,
    kDepth = 4 * EACH,  // columns of K at a time
    kParts = EACH / 8,  // of a lane's columns, of 8
    kStages = STAGES,
    kSets = STAGES == 2 ? 2 : 4,  // of factors of kGroups groups, that have room
    kGroups = 4,
    kBand = 16,                            // rows that are computed or not
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
    return row * kVectors + (vector ^ row % 2 ^ vector / 8 * 2);
  }
  // Where row n of the weights lies: first the even rows of 16, then the odd ones, for those that
  // are read together are apart by two.
  static constexpr uint weight_place(uint n) { return n / 16 * 16 + n % 2 * 8 + n % 16 / 2; }
};

// How stages lie in threadgroup memory, in Sixteens: each has activations and codes; behind them
// are the sets of factors, kGroups scales and as many biases of each row.
template <class S, class Shape>
struct LaneStage {
  enum : uint {
    kChunks = S::kBits * Shape::kDepth / 128,  // of codes, of a row of weights
    kCodes = Shape::kRows * Shape::kVectors,
    kSize = kCodes + Shape::kColumns * kChunks,
    kFactors = Shape::kStages * kSize,
    kAll = kFactors + Shape::kSets * Shape::kColumns,
    kCodeCopies = Shape::kColumns * kChunks / Shape::kThreads,
    kFactorCopies = Shape::kColumns * 2 / Shape::kThreads
  };
};

typedef LaneShape<16, 128, 32, 32, 3> LaneTile16;
typedef LaneShape<32, 128, 32, 32, 2> LaneTile32;
typedef LaneShape<64, 128, 32, 16, 2> LaneTile64;
typedef LaneShape<128, 128, 32, 16, 2> LaneTile128;
// For codes of 8 bits, which take twice the memory.
typedef LaneShape<16, 64, 32, 32, 3> ByteTile16;
typedef LaneShape<32, 128, 32, 16, 2> ByteTile32;

template <class S, class A, uint ROWS, uint COLUMNS, uint WN, uint EACH, uint STAGES>
struct GemmMemory<S, A, LaneShape<ROWS, COLUMNS, WN, EACH, STAGES>> {
  enum : uint { kBytes = LaneStage<S, LaneShape<ROWS, COLUMNS, WN, EACH, STAGES>>::kAll * 16 };
};

// What a lane holds of EACH weights of a row, and how they become factors, 8 at a time.
template <class S, uint EACH>
struct LaneUnit {
  enum : uint { kWords = EACH * S::kBits / 32 };
  uint words[kWords];
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

template <int W, uint EACH>
struct LaneUnit<Q4<W>, EACH> {
  enum : uint { kWords = EACH / 8 };
  uint words[kWords];
  uint scales, biases;

  // A code alone in the low byte of a bfloat reads as code / 2^133, or 16 code / 2^133 where it is
  // the byte's upper half: one instruction makes both code / 64, and one applies scale and bias.
  void decode(uint part, thread uint (&pairs)[4]) const thread {
    const uint low = words[part] & 0x0F0F0F0Fu, high = words[part] & 0xF0F0F0F0u;
    const uint larger = fma_pairs(scales, 0x42804280u, 0u);
    LILY_UNROLL
    for (uint i = 0; i < 4; ++i) {
      const uint codes = pick_bytes(low, high, 0x8480u + i * 0x1111u);
      pairs[i] = fma_pairs(fma_pairs(codes, 0x7D007F00u, 0u), larger, biases);
    }
  }
};

// The codes of a lane's columns, the place'th of a stage.
inline void read_codes(thread uint (&words)[2], threadgroup const Sixteen* codes, uint place) {
  const uint2 loaded = ((threadgroup const uint2*)codes)[place];
  words[0] = loaded.x, words[1] = loaded.y;
}
template <uint WORDS>
inline void read_codes(thread uint (&words)[WORDS], threadgroup const Sixteen* codes, uint place) {
  LILY_UNROLL
  for (uint w = 0; w < WORDS; ++w) words[w] = codes[place * (WORDS / 4) + w / 4][w % 4];
}

// What a lane reads of a step's weights. factors: of the set; group: its number in the set.
template <class S, class Shape>
inline void load_weights(thread LaneUnit<S, Shape::kEach> (&units)[Shape::kUnits],
                         threadgroup const Sixteen* codes, threadgroup const Sixteen* factors,
                         uint column, uint group, uint lane) {
  const uint selector = group % 2 ? 0x3232 : 0x1010;
  LILY_UNROLL
  for (uint i = 0; i < Shape::kUnits / 2; ++i) {
    LILY_UNROLL
    for (uint at = 0; at < 2; ++at) {
      thread LaneUnit<S, Shape::kEach>& unit = units[Shape::unit_of(i, at)];
      const uint row = column + i * 16 + at * 8 + lane / 4;  // weight_place
      read_codes(unit.words, codes, row * 4 + lane % 4);
      threadgroup const uint* pairs = (threadgroup const uint*)(factors + row) + group / 2;
      unit.scales = pick_bytes(pairs[0], pairs[0], selector);
      unit.biases = pick_bytes(pairs[2], pairs[2], selector);
    }
  }
}

// A thread's copies: one vector of every kRowsApart-th row of activations, and chunks of codes and
// factors of some rows of weights.
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
      const uint at = i * Shape::kThreads + thread_index;
      const Row row = source.weight(at / 2);
      factors[i] = at % 2 ? row.biases : row.scales;
    }
  }
  // Nothing is begun past the last column. group_bits: of a column's number, within a group.
  void begin(threadgroup Sixteen* memory, uint turn, uint k, uint cols, uint group_bits,
             uint thread_index) thread {
    threadgroup Sixteen* stage = memory + turn * Stage::kSize;
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
    }
    const uint group = k >> group_bits;
    if (k < cols && group % Shape::kGroups == 0 && group << group_bits == k) {
      const uint set = group / Shape::kGroups % Shape::kSets;
      threadgroup uint2* to =
          (threadgroup uint2*)(memory + Stage::kFactors + set * Shape::kColumns);
      LILY_UNROLL
      for (uint i = 0; i < Stage::kFactorCopies; ++i) {
        const uint at = i * Shape::kThreads + thread_index;
        copy_eight_ahead(to + Shape::weight_place(at / 2) * 2 + at % 2,
                         (device const uint2*)(factors[i] + group));
      }
    }
    close_copies();
  }
};

// A simdgroup's results: matrices of 16 rows of weights and 8 rows of activations.
template <class Shape>
struct LaneSums {
  float at[Shape::kUnits / 2][Shape::kRows / 8][4];

  void clear() thread {
    LILY_UNROLL
    for (uint n = 0; n < Shape::kUnits / 2; ++n) {
      LILY_UNROLL
      for (uint m = 0; m < Shape::kRows / 8; ++m) {
        LILY_UNROLL
        for (uint e = 0; e < 4; ++e) at[n][m][e] = 0.0f;
      }
    }
  }
  // One step. stage: its activations; BANDS: of this simdgroup, that exist.
  template <uint BANDS, class S>
  void add(thread const LaneUnit<S, Shape::kEach> (&units)[Shape::kUnits],
           threadgroup const Sixteen* stage, uint lane) thread {
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
      uint4 next = from[0];
      LILY_UNROLL
      for (uint m = 0; m < BANDS * (Shape::kBand / 8); ++m) {
        const uint4 right = next;
        if (m + 1 < BANDS * (Shape::kBand / 8)) next = from[(m + 1) * 8 * Shape::kVectors];
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
  // This simdgroup's rows of the tile, of which there are `rows`, to the sink. Where some rows go
  // is asked for before the first of them does.
  template <class Sink>
  void store(thread const Sink& sink, uint column, uint rows, uint lane) const thread {
    enum : uint { kHalf = Shape::WN / 32, kAtOnce = Shape::kRows < 32 ? Shape::kRows / 8 : 4 };
    LILY_UNROLL
    for (uint first = 0; first < Shape::kRows / 8; first += kAtOnce) {
      uint row[2 * kAtOnce], place[2 * kAtOnce];
      LILY_UNROLL
      for (uint i = 0; i < 2 * kAtOnce; ++i) {
        row[i] = (first + i / 2) * 8 + lane % 4 * 2 + i % 2;
        place[i] = sink.place(min(row[i], rows - 1));
      }
      LILY_UNROLL
      for (uint i = 0; i < 2 * kAtOnce; ++i) {
        if (row[i] >= rows) continue;
        const uint m = first + i / 2, e = i % 2;
        Pairs<2 * kHalf> pairs;
        LILY_UNROLL
        for (uint n = 0; n < kHalf; ++n) {
          pairs.at[n] = float2(at[2 * n][m][e], at[2 * n + 1][m][e]);
          pairs.at[kHalf + n] = float2(at[2 * n][m][2 + e], at[2 * n + 1][m][2 + e]);
        }
        sink.store_pairs(place[i], column + lane / 4 * 2, pairs);
      }
    }
  }
};

// All steps, of which the first have been begun.
template <uint BANDS, class S, class A, class Shape, class Source>
inline void multiply_steps(thread LaneSums<Shape>& sums, thread Copies<S, A, Shape, Source>& copies,
                           uint cols, uint group_bits, threadgroup Sixteen* memory, uint column,
                           uint thread_index, uint lane) {
  typedef LaneStage<S, Shape> Stage;
  enum : uint { kAhead = Shape::kStages - 1 };
  uint turn = 0, turn_ahead = kAhead;
  for (uint k = 0; k < cols; k += Shape::kDepth) {
    wait_for_copies<kAhead - 1>();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    copies.begin(memory, turn_ahead, k + kAhead * Shape::kDepth, cols, group_bits, thread_index);
    threadgroup const Sixteen* stage = memory + turn * Stage::kSize;
    const uint group = (k + lane % 4 * Shape::kEach) >> group_bits;
    const uint set = group / Shape::kGroups % Shape::kSets;
    LaneUnit<S, Shape::kEach> units[Shape::kUnits];
    load_weights<S, Shape>(units, stage + Stage::kCodes,
                           memory + Stage::kFactors + set * Shape::kColumns, column,
                           group % Shape::kGroups, lane);
    sums.template add<BANDS>(units, stage, lane);
    turn = turn == kAhead ? 0 : turn + 1;
    turn_ahead = turn_ahead == kAhead ? 0 : turn_ahead + 1;
  }
}

template <class S, class A, uint ROWS, uint COLUMNS, uint WN, uint EACH, uint STAGES, class Source,
          class Sink>
inline void gemm(LaneShape<ROWS, COLUMNS, WN, EACH, STAGES>, thread const Source& source,
                 thread const Sink& sink, Stored matrix, threadgroup Sixteen* memory,
                 uint thread_index, uint lane, uint simdgroup) {
  typedef LaneShape<ROWS, COLUMNS, WN, EACH, STAGES> Shape;
  const uint column = simdgroup * WN, cols = matrix.cols,
             group_bits = popcount(matrix.group_size - 1);
  Copies<S, A, Shape, Source> copies;
  copies.find(source, thread_index);
  LILY_UNROLL
  for (uint s = 0; s + 1 < STAGES; ++s) {
    copies.begin(memory, s, s * Shape::kDepth, cols, group_bits, thread_index);
  }
  LaneSums<Shape> sums;
  sums.clear();
  // A tile that is seldom short computes all bands; others have a loop for each number of them,
  // because branches within would keep loads and products apart.
  enum : uint {
    kBands = ROWS / Shape::kBand,
    kTwo = kBands < 2 ? 1 : 2,
    kThree = kBands < 3 ? 1 : 3
  };
  static_assert(!Source::kMayBeShort || kBands <= 4, "a loop for each number of bands");
  const uint bands = (copies.rows + Shape::kBand - 1) / Shape::kBand;
  if (!Source::kMayBeShort || bands == kBands) {
    multiply_steps<kBands, S, A, Shape>(sums, copies, cols, group_bits, memory, column,
                                        thread_index, lane);
  } else if (bands == 1) {
    multiply_steps<1, S, A, Shape>(sums, copies, cols, group_bits, memory, column, thread_index,
                                   lane);
  } else if (bands == 2) {
    multiply_steps<kTwo, S, A, Shape>(sums, copies, cols, group_bits, memory, column, thread_index,
                                      lane);
  } else {
    multiply_steps<kThree, S, A, Shape>(sums, copies, cols, group_bits, memory, column,
                                        thread_index, lane);
  }
  sums.store(sink, column, copies.rows, lane);
}

}  // namespace lily
