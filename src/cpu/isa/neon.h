// NEON: the vector words of simd.h for 64-bit Arm (Apple Silicon, Graviton, ...).
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace lily::cpu::neon {

inline constexpr int kLanes = 4;
inline constexpr int kTileVectors =
    4;  // 6 rows x 4 vectors of accumulators fill 24 of 32 registers

struct Floats {
  float32x4_t v;
};
struct Words {
  uint32x4_t v;
};

inline Floats splat(float x) { return {vdupq_n_f32(x)}; }
inline Floats load(const float* p) {
  return {vreinterpretq_f32_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(p)))};  // any alignment
}
inline Floats load_n(const float* p, int n) {
  float padded[4] = {};
  std::memcpy(padded, p, static_cast<size_t>(n) * 4);
  return load(padded);
}
inline void store(float* p, Floats x) { vst1q_f32(p, x.v); }
inline void store_n(float* p, Floats x, int n) {
  float padded[4];
  vst1q_f32(padded, x.v);
  std::memcpy(p, padded, static_cast<size_t>(n) * 4);
}

inline Floats operator+(Floats a, Floats b) { return {vaddq_f32(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {vsubq_f32(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {vmulq_f32(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {vdivq_f32(a.v, b.v)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
inline Floats max(Floats a, Floats b) { return {vmaxq_f32(a.v, b.v)}; }
inline Floats min(Floats a, Floats b) { return {vminq_f32(a.v, b.v)}; }
inline float sum(Floats a) { return vaddvq_f32(a.v); }
inline float maximum(Floats a) { return vmaxvq_f32(a.v); }
inline Floats round(Floats a) { return {vrndnq_f32(a.v)}; }
// 2^n for integral n in [-126, 127].
inline Floats exp2_integer(Floats n) {
  const int32x4_t biased = vaddq_s32(vcvtq_s32_f32(n.v), vdupq_n_s32(127));
  return {vreinterpretq_f32_s32(vshlq_n_s32(biased, 23))};
}

inline Floats load_bf16(const uint16_t* p) {
  const uint8x8_t bytes = vld1_u8(reinterpret_cast<const uint8_t*>(p));  // any alignment
  return {vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(bytes), 16))};
}
inline Floats load_bf16_n(const uint16_t* p, int n) {
  uint16_t padded[4] = {};
  std::memcpy(padded, p, static_cast<size_t>(n) * 2);
  return load_bf16(padded);
}
inline Floats load_u8(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  const uint16x8_t wide = vmovl_u8(vcreate_u8(word));
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)))};
}

// 4 codes from 2 bytes, in natural order.
inline Floats load_q4(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  const int32_t shifts[4] = {0, -4, -8, -12};
  const uint32x4_t codes = vshlq_u32(vdupq_n_u32(half), vld1q_s32(shifts));
  return {vcvtq_f32_u32(vandq_u32(codes, vdupq_n_u32(15)))};
}
inline Floats to_q4_order(Floats natural) { return natural; }

// Lane r: the 32-bit word at p + r * stride_bytes.
inline Words gather_words(const uint8_t* p, int64_t stride_bytes) {
  uint32_t words[4];
  for (int r = 0; r < 4; ++r) std::memcpy(&words[r], p + r * stride_bytes, 4);
  return {vld1q_u32(words)};
}
// out[i], lane r: the 32-bit word at p + 4 * i + r * stride_bytes, for i < kLanes.
inline void transpose_words(const uint8_t* p, int64_t stride_bytes, Words* out) {
  for (int i = 0; i < kLanes; ++i) out[i] = gather_words(p + 4 * i, stride_bytes);
}
inline Words shift_right(Words w, int bits) { return {vshlq_u32(w.v, vdupq_n_s32(-bits))}; }
inline Floats low_nibble(Words w) { return {vcvtq_f32_u32(vandq_u32(w.v, vdupq_n_u32(15)))}; }
inline Floats low_byte(Words w) { return {vcvtq_f32_u32(vandq_u32(w.v, vdupq_n_u32(255)))}; }
inline Floats low_bf16(Words w) { return {vreinterpretq_f32_u32(vshlq_n_u32(w.v, 16))}; }
inline Floats as_floats(Words w) { return {vreinterpretq_f32_u32(w.v)}; }

}  // namespace lily::cpu::neon
