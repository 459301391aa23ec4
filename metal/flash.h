// Softmax attention of a tile of query rows over a range of the KV cache, carrying maximum, sum of
// weights and weighted values in fp32. Decode and prefill share it: in decode a threadgroup's
// simdgroups split the head's dimensions (each forms its part of the scores and its part of the
// values), in prefill its rows. Knows no projection and no grid.
//
// Scores pass through threadgroup memory, where kLanes / kTileRows lanes take a row: no lane needs
// to know which elements of a matrix it holds.
#pragma once

#include "attention_parts.h"
#include "tile.h"

namespace lily {

// D: head_dim. DIM_GROUPS x ROW_GROUPS simdgroups, of kTileRows query rows each.
template <uint D_, uint ROW_GROUPS, uint DIM_GROUPS_>
struct FlashShape {
  enum : uint {
    D = D_,
    DIM_GROUPS = DIM_GROUPS_,
    kSimdgroups = ROW_GROUPS * DIM_GROUPS_,
    kThreads = kSimdgroups * kLanes,
    kRows = ROW_GROUPS * kTileRows,
    kBlock = 2 * kTileRows,                                // tokens at a time
    kDims = D_ / DIM_GROUPS_,                              // of a simdgroup
    kPatch = kDims < kBlock ? uint(kDims) : uint(kBlock),  // columns that leave through scores
    kPitch = kDims + 8,                                    // elements between staged tokens
    kScorePitch = kBlock + 4,                              // floats between rows of scores
    kWeightPitch = kBlock + 8,                             // elements between rows of weights
    kLanesPerRow = kLanes / kTileRows,
    kTokensPerLane = kBlock / kLanesPerRow,
    // Registers allow it where a simdgroup holds few sums: the next keys and the next values are
    // then both under way all the time.
    kDeep = DIM_GROUPS_ > 1,
    kStagers = DIM_GROUPS_ == 1 ? kThreads : uint(kLanes),  // threads that stage a slice together
    kLoads = kBlock * kDims / 8 / kStagers,
    // Threadgroup memory, in elements of A and in floats.
    kSlices = DIM_GROUPS_ == 1 ? 1 : kSimdgroups,
    kStaged = kSlices * kBlock * kPitch,
    kWeights = kSimdgroups * kTileRows * kWeightPitch,
    kScoreTile = kTileRows * kScorePitch,
    // Where simdgroups read each other's scores, those of two blocks take turns.
    kTurns = DIM_GROUPS_ == 1 ? 1 : 2,
    kScores = kTurns * kSimdgroups * kScoreTile,
    kFactors = kSimdgroups * kTileRows
  };
};

// Of a threadgroup. staged and weights hold A.
template <class A>
struct FlashMemory {
  threadgroup A* staged;
  threadgroup A* weights;
  threadgroup float* scores;
  threadgroup float* factors;
};

// A slice's threads wait for each other: a simdgroup, or the whole threadgroup.
template <class Shape>
inline void wait_for_slice() {
  if (Shape::DIM_GROUPS == 1) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  } else {
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}

template <class A>
inline uint4 as_operand(uint4 words, A, bfloat) {
  return words;
}
inline uint4 as_operand(uint4 words, half, bfloat) {
  uint out[4];
  LILY_UNROLL
  for (uint i = 0; i < 4; ++i) {
    const half low = half(as_type<float>(words[i] << 16));
    const half high = half(as_type<float>(words[i] & 0xFFFF0000u));
    out[i] = uint(as_type<ushort>(low)) | uint(as_type<ushort>(high)) << 16;
  }
  return uint4(out[0], out[1], out[2], out[3]);
}

// One simdgroup's share of the tile. Row state is held by the lanes that own the row.
template <class A, class C, class Shape>
struct Flash {
  Left<A, kTileRows, Shape::kDims> queries;
  Sums<kTileRows, Shape::kDims> values;
  ElementRows rows;
  Sixteen loaded[Shape::kLoads];  // keys, and values where not deep
  Sixteen loaded_values[Shape::kDeep ? Shape::kLoads : 1];
  float highest, total;
  uint lane, simdgroup, stager;
  threadgroup A* staged;   // of this slice
  threadgroup A* weights;  // of this simdgroup
  threadgroup float* factors;
  threadgroup float* scores;  // of this threadgroup's DIM_GROUPS simdgroups that share rows
  uint dim;                   // first dimension of the slice

  void begin(FlashMemory<A> memory, uint thread_index, uint lane_, uint simdgroup_) thread {
    lane = lane_, simdgroup = simdgroup_;
    stager = Shape::DIM_GROUPS == 1 ? thread_index : lane;
    const uint part = simdgroup % Shape::DIM_GROUPS;
    dim = part * Shape::kDims;
    staged =
        memory.staged + (Shape::DIM_GROUPS == 1 ? 0 : simdgroup * Shape::kBlock * Shape::kPitch);
    weights = memory.weights + simdgroup * kTileRows * Shape::kWeightPitch;
    factors = memory.factors + simdgroup * kTileRows;
    scores = memory.scores + (simdgroup - part) * Shape::kScoreTile;
    rows = element_rows(memory.scores, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    values.clear();
    highest = lowest(), total = 0.0f;
  }

  // Tokens [from, from + kBlock) of the cache of one kv head into registers; past `end`, the last.
  void fetch(thread Sixteen (&to)[Shape::kLoads], device const C* cache, uint from,
             uint end) thread {
    LILY_UNROLL
    for (uint i = 0; i < Shape::kLoads; ++i) {
      const uint at = i * Shape::kStagers + stager;
      const uint token = min(from + at / (Shape::kDims / 8), end - 1);
      to[i] = *(device const uint4*)(cache + ulong(token) * Shape::D + dim +
                                     at % (Shape::kDims / 8) * 8);
    }
  }
  void put(thread const Sixteen (&from)[Shape::kLoads]) thread {
    LILY_UNROLL
    for (uint i = 0; i < Shape::kLoads; ++i) {
      const uint at = i * Shape::kStagers + stager;
      *(threadgroup uint4*)(staged + at / (Shape::kDims / 8) * Shape::kPitch +
                            at % (Shape::kDims / 8) * 8) = as_operand(from[i], A(), C());
    }
  }

  // Scores become weights: the lane's tokens of its row, of which those up to `last` are visible.
  void weigh(uint turn, uint from, uint last, float scale) thread {
    const uint row = lane / Shape::kLanesPerRow;
    const uint first = lane % Shape::kLanesPerRow * Shape::kTokensPerLane;
    threadgroup const float* mine =
        scores + turn * Shape::kSimdgroups * Shape::kScoreTile + row * Shape::kScorePitch + first;
    float score[Shape::kTokensPerLane], top = lowest();
    LILY_UNROLL
    for (uint i = 0; i < Shape::kTokensPerLane; ++i) {
      float sum = mine[i];
      LILY_UNROLL
      for (uint part = 1; part < Shape::DIM_GROUPS; ++part) {
        sum += mine[part * Shape::kScoreTile + i];
      }
      score[i] = from + first + i <= last ? sum * scale : lowest();
      top = max(top, score[i]);
    }
    LILY_UNROLL
    for (ushort apart = 1; apart < Shape::kLanesPerRow; apart *= 2) {
      top = max(top, simd_shuffle_xor(top, apart));
    }
    top = max(top, highest);
    const float rescale = exp(highest - top);
    float added = 0.0f;
    LILY_UNROLL
    for (uint i = 0; i < Shape::kTokensPerLane; i += 2) {
      const float low = from + first + i <= last ? exp(score[i] - top) : 0.0f;
      const float high = from + first + i + 1 <= last ? exp(score[i + 1] - top) : 0.0f;
      added += low + high;
      *(threadgroup uint*)(weights + row * Shape::kWeightPitch + first + i) =
          uint(as_type<ushort>(A(low))) | uint(as_type<ushort>(A(high))) << 16;
    }
    LILY_UNROLL
    for (ushort apart = 1; apart < Shape::kLanesPerRow; apart *= 2) {
      added += simd_shuffle_xor(added, apart);
    }
    total = fma(total, rescale, added);
    highest = top;
    if (first == 0) factors[row] = rescale;
  }

  // The first loads of attend(): to be called as soon as the cache holds tokens [begin, end).
  void start(device const C* keys, device const C* cache_values, uint begin, uint end) thread {
    fetch(loaded, keys, begin, end);
    fetch_ahead(cache_values, begin, end, bool_constant<Shape::kDeep != 0>());
  }
  void fetch_ahead(device const C* cache_values, uint from, uint end, bool_constant<true>) thread {
    fetch(loaded_values, cache_values, from, end);
  }
  void fetch_ahead(device const C*, uint, uint, bool_constant<false>) thread {}
  void put_values(bool_constant<true>) thread { put(loaded_values); }
  void put_values(bool_constant<false>) thread { put(loaded); }

  // Tokens [begin, end) of one kv head, after start(). last: the last token that the lane's row
  // sees.
  void attend(device const C* keys, device const C* cache_values, uint begin, uint end, uint last,
              float scale) thread {
    const bool_constant<Shape::kDeep != 0> deep;
    uint turn = 0;
    for (uint from = begin; from < end; from += Shape::kBlock, turn = (turn + 1) % Shape::kTurns) {
      const uint next = from + Shape::kBlock;
      put(loaded);
      wait_for_slice<Shape>();
      // Under way while scores are formed: the next keys, or, not deep, these tokens' values.
      if (!Shape::kDeep) {
        fetch(loaded, cache_values, from, end);
      } else if (next < end) {
        fetch(loaded, keys, next, end);
      }
      Sums<kTileRows, Shape::kBlock> sums;
      sums.clear();
      multiply_nt<A, kTileRows, Shape::kBlock, Shape::kDims>(sums, queries, staged, Shape::kPitch);
      sums.store_band(0, 0, Shape::kBlock,
                      scores + turn * Shape::kSimdgroups * Shape::kScoreTile +
                          simdgroup % Shape::DIM_GROUPS * Shape::kScoreTile,
                      Shape::kScorePitch);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      put_values(deep);
      weigh(turn, from, last, scale);
      wait_for_slice<Shape>();
      if (next < end) {
        if (!Shape::kDeep) fetch(loaded, keys, next, end);
        fetch_ahead(cache_values, next, end, deep);
      }
      values.scale_rows(factors, rows);
      Left<A, kTileRows, Shape::kBlock> left;
      left.load(weights, Shape::kWeightPitch);
      multiply_nn<A, kTileRows, Shape::kDims, Shape::kBlock>(values, left, staged, Shape::kPitch);
      wait_for_slice<Shape>();
    }
  }
};

}  // namespace lily
