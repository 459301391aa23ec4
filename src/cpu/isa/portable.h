// Any processor: the vector words of simd.h in four-float vectors that GCC and clang map to
// whatever the target has (SSE2 on x86-64), and plain code where they cannot.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace lily::cpu::portable {

inline constexpr int kLanes = 4;
inline constexpr int kTileVectors =
    2;  // 6 rows x 2 vectors of accumulators fill 12 of 16 registers

typedef float Float4 __attribute__((vector_size(16)));
typedef uint32_t Word4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));

struct Floats {
  Float4 v;
};
struct Words {
  Word4 v;
};

inline Floats splat(float x) { return {Float4{x, x, x, x}}; }
inline Floats load_n(const float* p, int n) {
  Floats out = splat(0);
  std::memcpy(&out.v, p, static_cast<size_t>(n) * 4);
  return out;
}
inline Floats load(const float* p) { return load_n(p, kLanes); }
inline void store_n(float* p, Floats x, int n) { std::memcpy(p, &x.v, static_cast<size_t>(n) * 4); }
inline void store(float* p, Floats x) { store_n(p, x, kLanes); }

inline Floats operator+(Floats a, Floats b) { return {a.v + b.v}; }
inline Floats operator-(Floats a, Floats b) { return {a.v - b.v}; }
inline Floats operator*(Floats a, Floats b) { return {a.v * b.v}; }
inline Floats operator/(Floats a, Floats b) { return {a.v / b.v}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {a.v * b.v + c.v}; }
inline Floats max(Floats a, Floats b) { return {a.v > b.v ? a.v : b.v}; }
inline Floats min(Floats a, Floats b) { return {a.v < b.v ? a.v : b.v}; }
inline float sum(Floats a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
inline float maximum(Floats a) {
  const float low = a.v[0] > a.v[2] ? a.v[0] : a.v[2], high = a.v[1] > a.v[3] ? a.v[1] : a.v[3];
  return low > high ? low : high;
}
inline Floats round(Floats a) {
  return {Float4{std::nearbyint(a.v[0]), std::nearbyint(a.v[1]), std::nearbyint(a.v[2]),
                 std::nearbyint(a.v[3])}};
}
// 2^n for integral n in [-126, 127].
inline Floats exp2_integer(Floats n) {
  const Int4 biased = (__builtin_convertvector(n.v, Int4) + 127) << 23;
  Floats out;
  std::memcpy(&out.v, &biased, sizeof out.v);
  return out;
}

inline Floats as_floats(Words w) {
  Floats out;
  std::memcpy(&out.v, &w.v, sizeof out.v);
  return out;
}
inline Floats load_bf16_n(const uint16_t* p, int n) {
  uint16_t h[4] = {};
  std::memcpy(h, p, static_cast<size_t>(n) * 2);
  return as_floats({Word4{h[0], h[1], h[2], h[3]} << 16});
}
inline Floats load_bf16(const uint16_t* p) { return load_bf16_n(p, kLanes); }
inline Floats load_u8(const uint8_t* p) {
  return {__builtin_convertvector(Int4{p[0], p[1], p[2], p[3]}, Float4)};
}

// 4 codes from 2 bytes, in natural order.
inline Floats load_q4(const uint8_t* p) {
  return {__builtin_convertvector(Int4{p[0] & 15, p[0] >> 4, p[1] & 15, p[1] >> 4}, Float4)};
}
inline Floats to_q4_order(Floats natural) { return natural; }

// Lane r: the 32-bit word at p + r * stride_bytes.
inline Words gather_words(const uint8_t* p, int64_t stride_bytes) {
  uint32_t words[4];
  for (int r = 0; r < 4; ++r) std::memcpy(&words[r], p + r * stride_bytes, 4);
  return {Word4{words[0], words[1], words[2], words[3]}};
}
// out[i], lane r: the 32-bit word at p + 4 * i + r * stride_bytes, for i < kLanes.
inline void transpose_words(const uint8_t* p, int64_t stride_bytes, Words* out) {
  for (int i = 0; i < kLanes; ++i) out[i] = gather_words(p + 4 * i, stride_bytes);
}
inline Words shift_right(Words w, int bits) { return {w.v >> static_cast<uint32_t>(bits)}; }
inline Floats low_nibble(Words w) {
  return {__builtin_convertvector(reinterpret_cast<Int4&>(w.v) & 15, Float4)};
}
inline Floats low_byte(Words w) {
  return {__builtin_convertvector(reinterpret_cast<Int4&>(w.v) & 255, Float4)};
}
inline Floats low_bf16(Words w) { return as_floats({w.v << 16}); }

}  // namespace lily::cpu::portable
