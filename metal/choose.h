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

// The softmax over the chosen, which is the softmax over all renormalised. Equal logits: the lower
// id wins. Lane l looks at experts l, l + 32, ...
inline Chosen choose_experts(device const float* logits, uint experts, uint slots, uint lane) {
  float mine[kExpertsPerLane];
  LILY_UNROLL
  for (uint n = 0; n < kExpertsPerLane; ++n) {
    const uint e = n * kLanes + lane;
    mine[n] = e < experts ? logits[e] : -INFINITY;
  }
  Chosen chosen{0, 0.0f};
  float best = 0.0f, total = 0.0f, exponent = 0.0f;
  for (uint slot = 0; slot < slots; ++slot) {
    float top = mine[0];
    LILY_UNROLL
    for (uint n = 1; n < kExpertsPerLane; ++n) top = max(top, mine[n]);
    top = simd_max(top);
    uint id = 0xFFFFFFFFu;
    LILY_UNROLL
    for (uint n = kExpertsPerLane; n > 0; --n) {
      id = mine[n - 1] == top ? (n - 1) * kLanes + lane : id;
    }
    id = min(simd_min(id), experts - 1);  // logits that are all NaN equal nothing
    LILY_UNROLL
    for (uint n = 0; n < kExpertsPerLane; ++n) {
      mine[n] = n * kLanes + lane == id ? -INFINITY : mine[n];
    }
    if (slot == 0) best = top;
    const float weight = exp(top - best);
    total += weight;
    if (lane == slot) chosen.id = id, exponent = weight;
  }
  chosen.weight = lane < slots ? exponent / total : sigmoid(logits[experts]);
  return chosen;
}

// ids u32 [S], weights f32 [S + 1]
inline void store_chosen(Chosen chosen, uint slots, device uint* ids, device float* weights,
                         uint lane) {
  if (lane < slots) ids[lane] = chosen.id;
  if (lane <= slots) weights[lane] = chosen.weight;
}

}  // namespace lily
