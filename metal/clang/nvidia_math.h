// Mathematical functions on NVIDIA, without any library: the hardware's approximations for
// metal::fast, and for metal::precise what keeps errors within a few units in the last place.
#pragma once

namespace lily_target {

METAL_FUNC float raw_exp2(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
METAL_FUNC float raw_log2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// --- fast

METAL_FUNC float fast_exp2(float x) { return raw_exp2(x); }
METAL_FUNC float fast_exp(float x) { return raw_exp2(x * 1.44269504088896341f); }
METAL_FUNC float fast_log2(float x) { return raw_log2(x); }
METAL_FUNC float fast_log(float x) { return raw_log2(x) * 0.693147180559945309f; }
METAL_FUNC float fast_sqrt(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
METAL_FUNC float fast_rsqrt(float x) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
METAL_FUNC float fast_sin(float x) {
  float y;
  asm("sin.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
METAL_FUNC float fast_cos(float x) {
  float y;
  asm("cos.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
METAL_FUNC float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
METAL_FUNC float fast_divide(float x, float y) {
  float quotient;
  asm("div.approx.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(y));
  return quotient;
}

// --- precise

// x * 2^exponent, for exponents within 250 of zero: in two factors, so that subnormal results and
// those near the largest float come out right.
METAL_FUNC float scale(float x, int exponent) {
  const int half_way = exponent >> 1;
  return x * __builtin_bit_cast(float, (half_way + 127) << 23) *
         __builtin_bit_cast(float, (exponent - half_way + 127) << 23);
}
METAL_FUNC float precise_exp2(float x) {
  const float whole = __builtin_rintf(x);
  return __builtin_fabsf(x) < 160.0f ? scale(raw_exp2(x - whole), int(whole)) : raw_exp2(x);
}
METAL_FUNC float precise_exp(float x) {
  // Where the result is zero or infinity it is so at 110 too; without a branch, and NaN stays.
  x = __nvvm_fmax_nan_f(__nvvm_fmin_nan_f(x, 110.0f), -110.0f);
  // x log2(e) as a whole number and a small rest, the rest with the constant's lower half.
  const float whole = __builtin_rintf(x * 1.44269504088896341f);
  float rest = __builtin_fmaf(x, 1.44269504088896341f, -whole);
  rest = __builtin_fmaf(x, 1.92596299112661746887e-8f, rest);
  return scale(raw_exp2(rest), int(whole));
}

// Natural logarithm: exponent, and a polynomial of the mantissa in [sqrt(1/2), sqrt(2)), after
// Cephes' logf. The hardware's lg2 loses all digits near 1.
METAL_FUNC float precise_log(float x) {
  const bool is_small = x < 0x1p-126f;
  const float normal = is_small ? x * 0x1p25f : x;
  const uint bits = __builtin_bit_cast(uint, normal);
  int exponent = int(bits >> 23) - 126 - (is_small ? 25 : 0);
  float m = __builtin_bit_cast(float, (bits & 0x7fffffu) | 0x3f000000u);
  const bool is_low = m < 0.707106781186547524f;
  exponent -= is_low ? 1 : 0;
  m = is_low ? m + m - 1.0f : m - 1.0f;
  float p = 7.0376836292e-2f;
  p = __builtin_fmaf(p, m, -1.1514610310e-1f);
  p = __builtin_fmaf(p, m, 1.1676998740e-1f);
  p = __builtin_fmaf(p, m, -1.2420140846e-1f);
  p = __builtin_fmaf(p, m, 1.4249322787e-1f);
  p = __builtin_fmaf(p, m, -1.6668057665e-1f);
  p = __builtin_fmaf(p, m, 2.0000714765e-1f);
  p = __builtin_fmaf(p, m, -2.4999993993e-1f);
  p = __builtin_fmaf(p, m, 3.3333331174e-1f);
  const float square = m * m;
  float y = m * square * p;
  y = __builtin_fmaf(float(exponent), -2.12194440e-4f, y);
  y = __builtin_fmaf(-0.5f, square, y) + m;
  y = __builtin_fmaf(float(exponent), 0.693359375f, y);
  const bool is_usual = x > 0.0f && x < __builtin_inff();
  return is_usual ? y : raw_log2(x);  // 0, infinity, NaN and negative numbers
}
METAL_FUNC float precise_log2(float x) {
  const bool is_usual = x > 0.0f && x < __builtin_inff();
  const float y = precise_log(x);
  return is_usual ? y * 1.44269504088896341f : y;
}

METAL_FUNC float precise_sqrt(float x) { return __builtin_sqrtf(x); }
// One step of Newton's from the approximation; none where that is zero, infinity or NaN.
METAL_FUNC float precise_rsqrt(float x) {
  const float y = fast_rsqrt(x);
  const float error = __builtin_fmaf(-x * y, y, 1.0f);
  return __builtin_fabsf(error) < 1.0f ? __builtin_fmaf(0.5f * y, error, y) : y;
}

METAL_FUNC float precise_tanh(float x) {
  const float size = __builtin_fabsf(x);
  const float square = x * x;
  // Near zero by the odd series, where 1 - 2 / (exp(2x) + 1) would cancel; after Cephes' tanhf.
  float p = -5.70498872745e-3f;
  p = __builtin_fmaf(p, square, 2.06390887954e-2f);
  p = __builtin_fmaf(p, square, -5.37397155531e-2f);
  p = __builtin_fmaf(p, square, 1.33314422036e-1f);
  p = __builtin_fmaf(p, square, -3.33332819422e-1f);
  const float near = __builtin_fmaf(p * square, x, x);
  const float far = __builtin_copysignf(1.0f - 2.0f / (precise_exp(2.0f * size) + 1.0f), x);
  return size < 0.625f ? near : far;
}

// x as a quarter-turn count and a rest within pi / 4. Three parts of pi / 2 and fused products hold
// for angles up to about a million, the longest that a context gives a rotary frequency.
METAL_FUNC int quarter_turns(float x, thread float& rest) {
  const float turns = __builtin_rintf(x * 0.636619772367581343f);
  rest = __builtin_fmaf(turns, -1.5707962512969970703f, x);
  rest = __builtin_fmaf(turns, -7.5497894158615963534e-8f, rest);
  rest = __builtin_fmaf(turns, -5.3903029534742383927e-15f, rest);
  return int(turns);
}
METAL_FUNC float near_sin(float x) {
  const float square = x * x;
  float p = -1.9515295891e-4f;
  p = __builtin_fmaf(p, square, 8.3321608736e-3f);
  p = __builtin_fmaf(p, square, -1.6666654611e-1f);
  return __builtin_fmaf(p * square, x, x);
}
METAL_FUNC float near_cos(float x) {
  const float square = x * x;
  float p = 2.443315711809948e-5f;
  p = __builtin_fmaf(p, square, -1.388731625493765e-3f);
  p = __builtin_fmaf(p, square, 4.166664568298827e-2f);
  return __builtin_fmaf(p * square, square, __builtin_fmaf(-0.5f, square, 1.0f));
}
METAL_FUNC float sin_of_turns(int turns, float rest) {
  const float y = (turns & 1) ? near_cos(rest) : near_sin(rest);
  return (turns & 2) ? -y : y;
}
METAL_FUNC float precise_sin(float x) {
  float rest;
  const int turns = quarter_turns(x, rest);
  return sin_of_turns(turns, rest);
}
METAL_FUNC float precise_cos(float x) {
  float rest;
  const int turns = quarter_turns(x, rest);
  return sin_of_turns(turns + 1, rest);
}

}  // namespace lily_target
