// The prefill kernel of attention.metal, for any tile. Knows no layer.
#pragma once

#include "activation.h"
#include "flash.h"
#include "heads.h"

namespace lily {

// Rows are (token, head of the group) pairs in token order. group.x: tile of rows, last
// first, because they see the most keys; group.y: kv head.

template <uint D, class A>
[[kernel]] void attention_prefill(device const A* q [[buffer(0)]],
                                  device const float* proj [[buffer(1)]],
                                  device const bfloat* k_cache [[buffer(2)]],
                                  device const bfloat* v_cache [[buffer(3)]],
                                  device A* y [[buffer(4)]],
                                  constant AttentionParams& p [[buffer(5)]], LILY_PLACE) {
  typedef FlashShape<D, 4, 1> Shape;
  LILY_THREADGROUP(Sixteen, staged_memory, (Shape::kStaged / 8));
  LILY_THREADGROUP(Sixteen, weight_memory, (Shape::kWeights / 8));
  LILY_THREADGROUP(float, scores, Shape::kScores);
  LILY_THREADGROUP(float, factors, Shape::kFactors);
  const ProjectionRow row = projection_row(p);
  const uint shared_heads = p.q_heads / p.kv_heads, kv_head = group.y;
  const uint rows = p.tokens * shared_heads;
  const uint first = ((rows + Shape::kRows - 1) / Shape::kRows - 1 - group.x) * Shape::kRows;
  const uint mine = first + simdgroup * kTileRows;  // this simdgroup's first row
  Flash<A, bfloat, Shape> flash;
  flash.begin({(threadgroup A*)staged_memory, (threadgroup A*)weight_memory, scores, factors},
              thread_index, lane, simdgroup);
  // Queries pass through the staging memory, kBlock rows at a time.
  for (uint from = 0; from < Shape::kRows; from += Shape::kBlock) {
    LILY_UNROLL
    for (uint i = 0; i < Shape::kLoads; ++i) {
      const uint at = i * Shape::kThreads + thread_index;
      const uint r = min(first + from + at / (D / 8), rows - 1);
      const ulong head = kv_head * shared_heads + r % shared_heads;
      *(threadgroup uint4*)(flash.staged + at / (D / 8) * Shape::kPitch + at % (D / 8) * 8) =
          *(device const uint4*)(q + (ulong(r / shared_heads) * p.q_heads + head) * D +
                                 at % (D / 8) * 8);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint within = simdgroup * kTileRows;
    if (within >= from && within < from + Shape::kBlock) {
      flash.queries.load(flash.staged + (within - from) * Shape::kPitch, Shape::kPitch);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  const uint last_row = min(first + Shape::kRows, rows) - 1;
  const uint end = p.position + last_row / shared_heads + 1;
  const uint own = min(mine + lane / Shape::kLanesPerRow, rows - 1);
  const ulong cache = ulong(kv_head) * p.capacity * D;
  flash.start(k_cache + cache, v_cache + cache, 0, end);
  flash.attend(k_cache + cache, v_cache + cache, 0, end, p.position + own / shared_heads, p.scale);

  if (lane % Shape::kLanesPerRow == 0) {
    flash.factors[lane / Shape::kLanesPerRow] = 1.0f / flash.total;
  }
  threadgroup float* patch = scores + simdgroup * Shape::kScoreTile;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  flash.values.scale_rows(flash.factors, flash.rows);
  LILY_UNROLL
  for (uint column = 0; column < D; column += Shape::kBlock) {
    flash.values.store_band(0, column, Shape::kBlock, patch, Shape::kScorePitch);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = lane; i < kTileRows * Shape::kBlock; i += kLanes) {
      const uint r = mine + i / Shape::kBlock, c = column + i % Shape::kBlock;
      if (r >= rows) continue;
      const uint t = r / shared_heads, head = kv_head * shared_heads + r % shared_heads;
      const float gate = proj[ulong(t) * row.stride() + row.gate(head) + c];
      y[(ulong(t) * p.q_heads + head) * D + c] =
          A(patch[i / Shape::kBlock * Shape::kScorePitch + i % Shape::kBlock] * sigmoid(gate));
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}
}  // namespace lily
