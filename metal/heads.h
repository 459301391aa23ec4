// Attention heads: per-head RMSNorm with RoPE, and where the parts of a projection row lie. Shared
// by rope (prefill) and attention (decode), so that both write the same bits into the cache.
// A simdgroup takes a head: lane l holds elements l, l + 32, ... Knows no kernel.
#pragma once

#include "kernel.h"

namespace lily {

enum : uint { kMaxHeadDim = 256, kHeadElements = kMaxHeadDim / kLanes };

// Q * [query D | gate D], then k G*D, then v G*D.
struct ProjectionRow {
  uint q_heads, kv_heads, head_dim;
  uint stride() const thread { return 2 * (q_heads + kv_heads) * head_dim; }
  uint query(uint head) const thread { return head * 2 * head_dim; }
  uint gate(uint head) const thread { return query(head) + head_dim; }
  uint key(uint head) const thread { return (2 * q_heads + head) * head_dim; }
  uint value(uint head) const thread { return key(head) + kv_heads * head_dim; }
};
inline ProjectionRow projection_row(constant AttentionParams& p) {
  return {p.q_heads, p.kv_heads, p.head_dim};
}

// cosine (x) and sine (y) of an angle of up to a million radians. Fast functions lose such angles;
// pi/2 in three parts (Cody and Waite) brings them to [-pi/4, pi/4] with an error of 1e-7, and
// there two short polynomials do.
inline float2 cos_sin(float angle) {
  const float turns = rint(angle * 0.636619772f);
  float x = fma(turns, -1.57079637050628662109375f, angle);
  x = fma(turns, 4.37113900018624283e-8f, x);
  x = fma(turns, 1.71512459e-15f, x);
  const float xx = x * x;
  const float sine =
      fma(x * xx, fma(xx, fma(xx, -1.9515295891e-4f, 8.3321608736e-3f), -1.6666654611e-1f), x);
  const float cosine =
      fma(xx * xx,
          fma(xx, fma(xx, 2.443315711809948e-5f, -1.388731625493765e-3f), 4.166664568298827e-2f),
          fma(xx, -0.5f, 1.0f));
  const uint quarter = uint(int(turns)) & 3u;
  const float c = (quarter & 1) ? sine : cosine, s = (quarter & 1) ? cosine : sine;
  return float2(quarter == 1 || quarter == 2 ? -c : c, quarter >= 2 ? -s : s);
}

// value[n] = from[n * 32 + lane], zero past the end.
inline void load_head(thread float (&value)[kHeadElements], device const float* from, uint head_dim,
                      uint lane) {
  LILY_UNROLL
  for (uint n = 0; n < kHeadElements; ++n) {
    const uint i = n * kLanes + lane;
    value[n] = i < head_dim ? from[i] : 0.0f;
  }
}
// rms_norm of a loaded head, times a loaded gain.
inline void scale_head(thread float (&value)[kHeadElements],
                       thread const float (&gain)[kHeadElements], uint head_dim, float eps) {
  float squares = 0.0f;
  LILY_UNROLL
  for (uint n = 0; n < kHeadElements; ++n) squares = fma(value[n], value[n], squares);
  const float factor = precise::rsqrt(simd_sum(squares) / float(head_dim) + eps);
  LILY_UNROLL
  for (uint n = 0; n < kHeadElements; ++n) value[n] *= factor * gain[n];
}
// value[n] = rms_norm(from)[n * 32 + lane] * gain.
inline void norm_head(device const float* from, device const float* gain, uint head_dim, float eps,
                      uint lane, thread float (&value)[kHeadElements]) {
  float gains[kHeadElements];
  load_head(value, from, head_dim, lane);
  load_head(gains, gain, head_dim, lane);
  scale_head(value, gains, head_dim, eps);
}

// RoPE: pairs (i, i + rotary / 2) of the first `rotary` elements, by the angle of a position.
struct Rotation {
  enum : uint { kPairs = kMaxHeadDim / 2 / kLanes };
  float2 turns[kPairs];  // of pairs l, l + 32, ...

  void begin(device const float* inv_freq, uint rotary, uint position, uint lane) thread {
    LILY_UNROLL
    for (uint n = 0; n < kPairs; ++n) {
      const uint i = n * kLanes + lane;
      turns[n] = i < rotary / 2 ? cos_sin(float(position) * inv_freq[i]) : float2(1.0f, 0.0f);
    }
  }
  // The pair's other element is on another lane in general, so it comes through `row`, threadgroup
  // memory of this simdgroup [kMaxHeadDim], where the result stands in the end: a head is placed,
  // then turned, with a barrier after each, which several heads may share.
  static inline void place(thread const float (&value)[kHeadElements], uint lane,
                           threadgroup float* row) {
    LILY_UNROLL
    for (uint n = 0; n < kHeadElements; ++n) row[n * kLanes + lane] = value[n];
  }
  void turn(uint rotary, uint lane, threadgroup float* row) thread const {
    LILY_UNROLL
    for (uint n = 0; n < kPairs; ++n) {
      const uint i = n * kLanes + lane;
      if (i >= rotary / 2) continue;
      const float a = row[i], b = row[i + rotary / 2];
      row[i] = a * turns[n].x - b * turns[n].y;
      row[i + rotary / 2] = b * turns[n].x + a * turns[n].y;
    }
  }
  void apply(thread const float (&value)[kHeadElements], uint rotary, uint lane,
             threadgroup float* row) thread const {
    place(value, lane, row);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    turn(rotary, lane, row);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
};

}  // namespace lily
