// The vector words that kernels are written in, for the instruction set of this compilation
// (LILY_ISA, set by CMake), and the mathematics built on them. Everything lies in the namespace of
// the instruction set, so that no code compiled for one processor can be linked into another's
// path.
//
// isa/<name>.h gives: kLanes, kTileVectors, Floats, Words, loads and stores (whole, or the first n
// lanes with zeros behind), arithmetic, and the decoding of weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include LILY_ISA_HEADER

namespace lily::cpu::LILY_ISA {

inline Floats zeros() { return splat(0.0f); }

// e^x to about 1 ulp: 2^n times a polynomial on [-ln2/2, ln2/2], clamped to [-87, 88] so that n
// stays in range. The constants come first in max and min: so a NaN in x survives both.
inline Floats exp(Floats x) {
  const Floats clamped = min(splat(88.0f), max(splat(-87.0f), x));
  const Floats n = round(clamped * splat(1.44269504f));
  Floats r = fma(n, splat(-0.693359375f), clamped);  // ln2 in two parts: the first is exact times n
  r = fma(n, splat(2.12194440e-4f), r);
  Floats p = splat(1.9875691e-4f);
  p = fma(p, r, splat(1.3981999e-3f));
  p = fma(p, r, splat(8.3334519e-3f));
  p = fma(p, r, splat(4.1665796e-2f));
  p = fma(p, r, splat(1.6666665e-1f));
  p = fma(p, r, splat(0.5f));
  p = fma(p * r, r, r) + splat(1.0f);
  return p * exp2_integer(n);
}

inline Floats sigmoid(Floats x) { return splat(1.0f) / (splat(1.0f) + exp(zeros() - x)); }
inline Floats silu(Floats x) { return x * sigmoid(x); }

// body(vector_index_of_first_element, lanes) over [0, n) in vectors, the last one perhaps short.
template <class Body>
inline void for_vectors(int n, Body&& body) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}

inline Floats load_some(const float* p, int lanes) {
  return lanes == kLanes ? load(p) : load_n(p, lanes);
}
inline Floats load_some(const uint16_t* p, int lanes) {  // bf16
  return lanes == kLanes ? load_bf16(p) : load_bf16_n(p, lanes);
}
inline void store_some(float* p, Floats x, int lanes) {
  lanes == kLanes ? store(p, x) : store_n(p, x, lanes);
}

inline float dot(const float* a, const float* b, int n) {
  Floats even = zeros(), odd = zeros();
  int i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    even = fma(load(a + i), load(b + i), even);
    odd = fma(load(a + i + kLanes), load(b + i + kLanes), odd);
  }
  for (; i < n; i += kLanes) {
    const int lanes = n - i < kLanes ? n - i : kLanes;
    even = fma(load_some(a + i, lanes), load_some(b + i, lanes), even);
  }
  return sum(even + odd);
}

// 1 / sqrt(mean(x^2) + eps)
inline float inverse_rms(const float* x, int n, float eps) {
  return 1.0f / __builtin_sqrtf(dot(x, x, n) / static_cast<float>(n) + eps);
}

// to = x / rms(x) * gain
inline void rms_norm(const float* x, const float* gain, int n, float eps, float* to) {
  const Floats scale = splat(inverse_rms(x, n, eps));
  for_vectors(n, [&](int i, int lanes) {
    store_some(to + i, load_some(x + i, lanes) * scale * load_some(gain + i, lanes), lanes);
  });
}

// Files align nothing: a stored bf16 may lie at an odd address.
inline float bf16_at(const uint16_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, 4);
  return value;
}
// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t float_to_bf16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

}  // namespace lily::cpu::LILY_ISA
