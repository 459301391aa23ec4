// AVX-512 (F, BW, DQ, VL): the vector words of simd.h for x86-64 servers and recent desktops.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lily::cpu::avx512 {

inline constexpr int kLanes = 16;
inline constexpr int kTileVectors =
    4;  // 6 rows x 4 vectors of accumulators fill 24 of 32 registers

struct Floats {
  __m512 v;
};
struct Words {
  __m512i v;
};

inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline Floats splat(float x) { return {_mm512_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Floats load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
inline void store(float* p, Floats x) { _mm512_storeu_ps(p, x.v); }
inline void store_n(float* p, Floats x, int n) { _mm512_mask_storeu_ps(p, first(n), x.v); }

inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Floats max(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Floats min(Floats a, Floats b) { return {_mm512_min_ps(a.v, b.v)}; }
inline float sum(Floats a) { return _mm512_reduce_add_ps(a.v); }
inline float maximum(Floats a) { return _mm512_reduce_max_ps(a.v); }
inline Floats round(Floats a) { return {_mm512_roundscale_ps(a.v, 8)}; }
// 2^n for integral n in [-126, 127].
inline Floats exp2_integer(Floats n) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}

inline Floats from_bf16(__m256i half) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
inline Floats load_bf16(const uint16_t* p) {
  return from_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Floats load_bf16_n(const uint16_t* p, int n) {
  return from_bf16(_mm256_maskz_loadu_epi16(first(n), p));
}
inline Floats load_u8(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
}

// The 16 values of a 4-bit code as floats. vpermps reads only the low 4 bits of each index, so a
// shifted word needs neither mask nor conversion.
inline __m512 code_values() {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// 16 codes from 8 bytes, in the order 0, 8, 1, 9, ... 7, 15: one 64-bit shift per lane pair.
inline Floats load_q4(const uint8_t* p) {
  const __m512i bytes = _mm512_set1_epi64(
      *reinterpret_cast<const int64_t __attribute__((aligned(1), may_alias))*>(p));
  const __m512i shift = _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28);
  return {_mm512_permutexvar_ps(_mm512_srlv_epi64(bytes, shift), code_values())};
}
// Puts 16 natural-order values into the order of load_q4.
inline Floats to_q4_order(Floats natural) {
  const __m512i index = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  return {_mm512_permutexvar_ps(index, natural.v)};
}

// Lane r: the 32-bit word at p + r * stride_bytes.
inline Words gather_words(const uint8_t* p, int64_t stride_bytes) {
  const __m512i low = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i step = _mm512_set1_epi64(stride_bytes);
  const __m512i offset = _mm512_mullo_epi64(low, step);
  const __m256i a = _mm512_i64gather_epi32(offset, p, 1);
  const __m256i b = _mm512_i64gather_epi32(offset, p + 8 * stride_bytes, 1);
  return {_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1)};
}
// out[i], lane r: the 32-bit word at p + 4 * i + r * stride_bytes, for i < kLanes. Vector loads and
// shuffles cost a quarter of as many gathers.
inline void transpose_words(const uint8_t* p, int64_t stride_bytes, Words* out) {
  __m512i quads[16];  // [4 g + c]: in quarter h, column 4 h + c of rows 4 g to 4 g + 3
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    __m512i row[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) row[r] = _mm512_loadu_si512(p + (g + r) * stride_bytes);
    const __m512i low01 = _mm512_unpacklo_epi32(row[0], row[1]);
    const __m512i high01 = _mm512_unpackhi_epi32(row[0], row[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(row[2], row[3]);
    const __m512i high23 = _mm512_unpackhi_epi32(row[2], row[3]);
    quads[g] = _mm512_unpacklo_epi64(low01, low23);
    quads[g + 1] = _mm512_unpackhi_epi64(low01, low23);
    quads[g + 2] = _mm512_unpacklo_epi64(high01, high23);
    quads[g + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i even01 = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0x88);
    const __m512i odd01 = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0xdd);
    const __m512i even23 = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0x88);
    const __m512i odd23 = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0xdd);
    out[c].v = _mm512_shuffle_i32x4(even01, even23, 0x88);
    out[4 + c].v = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
    out[8 + c].v = _mm512_shuffle_i32x4(even01, even23, 0xdd);
    out[12 + c].v = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
  }
}
inline Words shift_right(Words w, int bits) {
  return {_mm512_srl_epi32(w.v, _mm_cvtsi32_si128(bits))};
}
inline Floats low_nibble(Words w) { return {_mm512_permutexvar_ps(w.v, code_values())}; }
inline Floats low_byte(Words w) {
  return {_mm512_cvtepi32_ps(_mm512_and_si512(w.v, _mm512_set1_epi32(255)))};
}
inline Floats low_bf16(Words w) { return {_mm512_castsi512_ps(_mm512_slli_epi32(w.v, 16))}; }
inline Floats as_floats(Words w) { return {_mm512_castsi512_ps(w.v)}; }

}  // namespace lily::cpu::avx512
