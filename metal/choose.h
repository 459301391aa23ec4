// The best experts of a row of logits, and their weights. Shared by decode and prefill, so that
// both choose alike. A simdgroup chooses; every lane must take part. Knows no kernel.
#pragma once

#include "activation.h"
#include "kernel.h"

namespace lily {

enum : uint { kExpertsPerLane = kMaxExperts / kLanes };

// Lane s < slots holds the slot's expert and weight; lane `slots` holds the shared expert's weight.
struct Chosen {
  uint id;
  float weight;
};

// Floats in the order of integers: what a simdgroup finds the largest of in one instruction where
// it has one. Zeros are equal, and a NaN is less than all else.
inline uint key_of(float x) {
  const uint bits = as_type<uint>(x == 0.0f ? 0.0f : x);
  return select(bits ^ (uint(int(bits) >> 31) | 0x80000000u), 0u, isnan(x));
}
inline float of_key(uint key) {
  return as_type<float>(key ^ (uint(int(~key) >> 31) | 0x80000000u));
}

// The largest of a lane's keys and its expert, the lowest of equals: as a tree, because each
// comparison waits for those that it is made of.
struct Best {
  uint key, id;
};
inline Best best_of(thread const uint (&keys)[kExpertsPerLane], uint lane) {
  Best best[kExpertsPerLane];
  LILY_UNROLL
  for (uint n = 0; n < kExpertsPerLane; ++n) best[n] = {keys[n], n * kLanes + lane};
  LILY_UNROLL
  for (uint half_of = kExpertsPerLane / 2; half_of > 0; half_of /= 2) {
    LILY_UNROLL
    for (uint n = 0; n < half_of; ++n) {
      const Best low = best[2 * n], high = best[2 * n + 1];
      best[n] = {max(low.key, high.key), select(low.id, high.id, high.key > low.key)};
    }
  }
  return best[0];
}

// The best experts in order: lane s < `slots` holds the slot's expert and its logit's key.
struct Ranked {
  uint id, key, first_key;
};

// Equal logits: the lower id wins. Lane l looks at experts l, l + 32, ... Each slot waits for the
// one before it, so that who needs the first few only asks for no more.
inline Ranked rank_experts(device const float* logits, uint experts, uint slots, uint lane) {
  uint keys[kExpertsPerLane];  // of those not chosen yet; 0: none
  LILY_UNROLL
  for (uint n = 0; n < kExpertsPerLane; ++n) {
    const uint e = n * kLanes + lane;
    keys[n] = select(0u, max(key_of(e < experts ? logits[e] : 0.0f), 1u), e < experts);
  }
  Ranked ranked{0, 0, 0};
  for (uint slot = 0; slot < slots; ++slot) {
    const Best own = best_of(keys, lane);
    const uint highest = simd_max(own.key);
    const uint id = simd_min(own.key == highest ? own.id : 0xFFFFFFFFu);
    LILY_UNROLL
    for (uint n = 0; n < kExpertsPerLane; ++n) keys[n] = n * kLanes + lane == id ? 0 : keys[n];
    ranked.first_key = select(ranked.first_key, highest, slot == 0);
    ranked.id = select(ranked.id, id, lane == slot);
    ranked.key = select(ranked.key, highest, lane == slot);
  }
  return ranked;
}

// The softmax over the ranked, which is the softmax over all renormalised; the shared expert's
// logit stands behind all others.
inline Chosen weigh_experts(Ranked ranked, device const float* logits, uint experts, uint slots,
                            uint lane) {
  const float shared = logits[experts];
  const float exponent = lane < slots ? exp(of_key(ranked.key) - of_key(ranked.first_key)) : 0.0f;
  const float total = simd_sum(exponent);
  return {ranked.id, lane < slots ? exponent / total : sigmoid(shared)};
}
inline Chosen choose_experts(device const float* logits, uint experts, uint slots, uint lane) {
  const Ranked ranked = rank_experts(logits, experts, slots, lane);
  return weigh_experts(ranked, logits, experts, slots, lane);
}

// ids u32 [S], weights f32 [S + 1]
inline void store_chosen(Chosen chosen, uint slots, device uint* ids, device float* weights,
                         uint lane) {
  if (lane < slots) ids[lane] = chosen.id;
  if (lane <= slots) weights[lane] = chosen.weight;
}

}  // namespace lily
