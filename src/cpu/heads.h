// Attention heads: per-head RMSNorm with RoPE, and the storage of the KV cache. Shared by rope
// (prefill) and attention (decode), so that both write the same bits into the cache.
#pragma once

#include <cmath>

#include "cpu/register.h"

namespace lily::cpu::LILY_ISA {

inline constexpr int kMaxHeadDim = 256;

// cos and sin of the angles of one position. Angles are formed in fp32, as transformers does, and
// reduced in double: at position 262,143 an fp32 cosine would lose the angle.
struct Rotation {
  float cosine[kMaxHeadDim / 2];
  float sine[kMaxHeadDim / 2];

  Rotation(const float* inv_freq, int pairs, uint32_t position) {
    for (int i = 0; i < pairs; ++i) {
      const double angle = static_cast<float>(position) * inv_freq[i];
      cosine[i] = static_cast<float>(std::cos(angle));
      sine[i] = static_cast<float>(std::sin(angle));
    }
  }
};

// to[head_dim] = rope(rms_norm(from) * gain): pairs (i, i + rotary / 2) of the first `rotary` dims.
inline void norm_rotate(const float* from, const float* gain, const Rotation& rotation,
                        int head_dim, int rotary, float eps, float* to) {
  rms_norm(from, gain, head_dim, eps, to);
  const int half = rotary / 2;
  for (int i = 0; i < half; ++i) {
    const float a = to[i], b = to[i + half];
    to[i] = a * rotation.cosine[i] - b * rotation.sine[i];
    to[i + half] = b * rotation.cosine[i] + a * rotation.sine[i];
  }
}

// One head's row of the cache, as stored.
inline void store_row(float* to, const float* from, int n) {
  __builtin_memcpy(to, from, static_cast<size_t>(n) * 4);
}
inline void store_row(uint16_t* to, const float* from, int n) {
  for (int i = 0; i < n; ++i) to[i] = float_to_bf16(from[i]);
}

template <class T>
struct CacheStorage;
template <>
struct CacheStorage<float> {
  using Stored = StoredF32;
};
template <>
struct CacheStorage<uint16_t> {
  using Stored = StoredBf16;
};

// Where the parts of a projection row lie (see AttentionTensors in ops.h).
struct ProjectionRow {
  int q_heads, kv_heads, head_dim;

  explicit ProjectionRow(const AttentionParams& p)
      : q_heads(static_cast<int>(p.q_heads)),
        kv_heads(static_cast<int>(p.kv_heads)),
        head_dim(static_cast<int>(p.head_dim)) {}
  uint64_t stride() const { return static_cast<uint64_t>(2 * q_heads + 2 * kv_heads) * head_dim; }
  int query(int head) const { return head * 2 * head_dim; }
  int gate(int head) const { return query(head) + head_dim; }
  int key(int head) const { return (2 * q_heads + head) * head_dim; }
  int value(int head) const { return key(head) + kv_heads * head_dim; }
};

}  // namespace lily::cpu::LILY_ISA
