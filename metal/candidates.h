// Candidates for the next token: their order, and sorting networks over the registers of a
// simdgroup. Knows no kernel.
#pragma once

#include "kernel.h"

namespace lily {

// No candidate: worse than any token, also than one whose logit is -infinity.
enum : uint { kNoToken = 0xFFFFFFFFu };

struct Candidate {
  float logit;
  uint id;
};

// Higher logit first; equal logits: lower id first. A NaN is no candidate.
inline bool better(Candidate a, Candidate b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}
inline Candidate candidate(float logit, uint id, bool there) {
  if (!there || isnan(logit)) return {-INFINITY, kNoToken};
  return {logit, id};
}
inline Candidate shuffle_candidate(Candidate c, ushort apart) {
  return {simd_shuffle_xor(c.logit, apart), simd_shuffle_xor(c.id, apart)};
}
inline Candidate choose_candidate(Candidate a, Candidate b, bool want_better) {
  return better(a, b) == want_better ? a : b;
}

// One step of a bitonic network over 32 * N candidates, of which lane l holds l, l + 32, ...:
// partners lie STRIDE apart; runs of `run` are sorted best first and worst first in turn.
template <uint N>
inline void exchange(thread Candidate (&c)[N], uint stride, uint run, uint lane) {
  Candidate old[N];
  LILY_UNROLL
  for (uint n = 0; n < N; ++n) old[n] = c[n];
  LILY_UNROLL
  for (uint n = 0; n < N; ++n) {
    const uint index = n * kLanes + lane;
    const bool descending = (index & run) == 0, lower = (index & stride) == 0;
    Candidate other = old[n ^ (stride / kLanes)];
    if (stride < kLanes) other = shuffle_candidate(old[n], ushort(stride));
    c[n] = choose_candidate(old[n], other, descending == lower);
  }
}

// Sorts 32 * N candidates, best first.
template <uint N>
inline void sort_candidates(thread Candidate (&c)[N], uint lane) {
  LILY_UNROLL
  for (uint run = 2; run <= N * kLanes; run *= 2) {
    LILY_UNROLL
    for (uint stride = run / 2; stride > 0; stride /= 2) exchange<N>(c, stride, run, lane);
  }
}

// The best 32 * N of two sorted lists of as many: the first against the reversed second leaves the
// best of both, as a bitonic sequence, which one merge sorts. `other` as this lane holds it.
template <uint N>
inline void merge_registers(thread Candidate (&c)[N], thread const Candidate (&other)[N],
                            uint lane) {
  LILY_UNROLL
  for (uint n = 0; n < N; ++n) {
    const Candidate mirrored = shuffle_candidate(other[N - 1 - n], ushort(kLanes - 1));
    c[n] = choose_candidate(c[n], mirrored, true);
  }
  LILY_UNROLL
  for (uint stride = N * kLanes / 2; stride > 0; stride /= 2) {
    exchange<N>(c, stride, 2 * N * kLanes, lane);
  }
}

enum : uint { kLaneBest = kCandidates / kLanes };

// The best kCandidates of the threadgroup's lists, one a simdgroup, in simdgroup 0. lists:
// [SIMDGROUPS / 2 * kCandidates]. All threads must call it.
template <uint SIMDGROUPS>
inline void merge_lists(thread Candidate (&best)[kLaneBest], threadgroup Candidate* lists,
                        uint lane, uint simdgroup) {
  for (uint alive = SIMDGROUPS / 2; alive > 0; alive /= 2) {
    threadgroup Candidate* list = lists + (simdgroup % alive) * kCandidates;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup >= alive && simdgroup < 2 * alive) {
      LILY_UNROLL
      for (uint n = 0; n < kLaneBest; ++n) list[n * kLanes + lane] = best[n];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup >= alive) continue;
    Candidate other[kLaneBest];
    LILY_UNROLL
    for (uint n = 0; n < kLaneBest; ++n) other[n] = list[n * kLanes + lane];
    merge_registers<kLaneBest>(best, other, lane);
  }
}

}  // namespace lily
