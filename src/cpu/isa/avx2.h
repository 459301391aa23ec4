// AVX2 and FMA: the vector words of simd.h for x86-64 since 2013.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace lily::cpu::avx2 {

inline constexpr int kLanes = 8;
inline constexpr int kTileVectors =
    2;  // 6 rows x 2 vectors of accumulators fill 12 of 16 registers

struct Floats {
  __m256 v;
};
struct Words {
  __m256i v;
};

inline __m256i first(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline Floats splat(float x) { return {_mm256_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline Floats load_n(const float* p, int n) { return {_mm256_maskload_ps(p, first(n))}; }
inline void store(float* p, Floats x) { _mm256_storeu_ps(p, x.v); }
inline void store_n(float* p, Floats x, int n) { _mm256_maskstore_ps(p, first(n), x.v); }

inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Floats min(Floats a, Floats b) { return {_mm256_min_ps(a.v, b.v)}; }
inline float sum(Floats a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float maximum(Floats a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
inline Floats round(Floats a) { return {_mm256_round_ps(a.v, 8)}; }
// 2^n for integral n in [-126, 127].
inline Floats exp2_integer(Floats n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23))};
}

inline Floats load_bf16(const uint16_t* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
}
inline Floats load_bf16_n(const uint16_t* p, int n) {
  uint16_t padded[8] = {};
  std::memcpy(padded, p, static_cast<size_t>(n) * 2);
  return load_bf16(padded);
}
inline Floats load_u8(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))};
}

// 8 codes from 4 bytes, in natural order.
inline Floats load_q4(const uint8_t* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(word), shift);
  return {_mm256_cvtepi32_ps(_mm256_and_si256(codes, _mm256_set1_epi32(15)))};
}
inline Floats to_q4_order(Floats natural) { return natural; }

// Lane r: the 32-bit word at p + r * stride_bytes.
inline Words gather_words(const uint8_t* p, int64_t stride_bytes) {
  alignas(32) uint32_t words[8];
  for (int r = 0; r < 8; ++r) std::memcpy(&words[r], p + r * stride_bytes, 4);
  return {_mm256_load_si256(reinterpret_cast<const __m256i*>(words))};
}
// out[i], lane r: the 32-bit word at p + 4 * i + r * stride_bytes, for i < kLanes. Vector loads and
// shuffles cost a quarter of as many gathers.
inline void transpose_words(const uint8_t* p, int64_t stride_bytes, Words* out) {
  __m256i quads[8];  // [4 g + c]: in half h, column 4 h + c of rows 4 g to 4 g + 3
#pragma GCC unroll 2
  for (int g = 0; g < 8; g += 4) {
    __m256i row[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      row[r] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + (g + r) * stride_bytes));
    }
    const __m256i low01 = _mm256_unpacklo_epi32(row[0], row[1]);
    const __m256i high01 = _mm256_unpackhi_epi32(row[0], row[1]);
    const __m256i low23 = _mm256_unpacklo_epi32(row[2], row[3]);
    const __m256i high23 = _mm256_unpackhi_epi32(row[2], row[3]);
    quads[g] = _mm256_unpacklo_epi64(low01, low23);
    quads[g + 1] = _mm256_unpackhi_epi64(low01, low23);
    quads[g + 2] = _mm256_unpacklo_epi64(high01, high23);
    quads[g + 3] = _mm256_unpackhi_epi64(high01, high23);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    out[c].v = _mm256_permute2x128_si256(quads[c], quads[4 + c], 0x20);
    out[4 + c].v = _mm256_permute2x128_si256(quads[c], quads[4 + c], 0x31);
  }
}
inline Words shift_right(Words w, int bits) {
  return {_mm256_srl_epi32(w.v, _mm_cvtsi32_si128(bits))};
}
inline Floats low_nibble(Words w) {
  return {_mm256_cvtepi32_ps(_mm256_and_si256(w.v, _mm256_set1_epi32(15)))};
}
inline Floats low_byte(Words w) {
  return {_mm256_cvtepi32_ps(_mm256_and_si256(w.v, _mm256_set1_epi32(255)))};
}
inline Floats low_bf16(Words w) { return {_mm256_castsi256_ps(_mm256_slli_epi32(w.v, 16))}; }
inline Floats as_floats(Words w) { return {_mm256_castsi256_ps(w.v)}; }

}  // namespace lily::cpu::avx2
