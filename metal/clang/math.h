// Arithmetic and mathematical functions of the namespaces metal, metal::fast and metal::precise,
// for float, half and their vectors; the scalar bodies are the target's (lily_target::fast_exp
// ...).
#pragma once

namespace metal {

template <class T>
METAL_FUNC constexpr T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
METAL_FUNC constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
METAL_FUNC constexpr T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}
template <class T>
METAL_FUNC constexpr T select(T if_false, T if_true, bool condition) {
  return condition ? if_true : if_false;
}
template <class T>
METAL_FUNC constexpr T mix(T a, T b, T weight) {
  return a + (b - a) * weight;
}

// --- functions of floating-point values

// Gives a function of floats its half and vector forms.
#define LILY_WIDEN_1(name)                                                             \
  METAL_FUNC half name(half x) { return half(name(float(x))); }                        \
  METAL_FUNC float2 name(float2 x) { return float2(name(x.x), name(x.y)); }            \
  METAL_FUNC float3 name(float3 x) { return float3(name(x.x), name(x.y), name(x.z)); } \
  METAL_FUNC float4 name(float4 x) { return float4(name(x.x), name(x.y), name(x.z), name(x.w)); }
#define LILY_WIDEN_2(name)                                                                      \
  METAL_FUNC half name(half x, half y) { return half(name(float(x), float(y))); }               \
  METAL_FUNC float2 name(float2 x, float2 y) { return float2(name(x.x, y.x), name(x.y, y.y)); } \
  METAL_FUNC float4 name(float4 x, float4 y) {                                                  \
    return float4(name(x.x, y.x), name(x.y, y.y), name(x.z, y.z), name(x.w, y.w));              \
  }
#define LILY_FLAVOURED(name)                                                \
  namespace precise {                                                       \
  METAL_FUNC float name(float x) { return lily_target::precise_##name(x); } \
  LILY_WIDEN_1(name)                                                        \
  }                                                                         \
  namespace fast {                                                          \
  METAL_FUNC float name(float x) { return lily_target::fast_##name(x); }    \
  LILY_WIDEN_1(name)                                                        \
  }                                                                         \
  METAL_FUNC float name(float x) { return lily_target::precise_##name(x); } \
  LILY_WIDEN_1(name)
LILY_FLAVOURED(exp)
LILY_FLAVOURED(exp2)
LILY_FLAVOURED(log)
LILY_FLAVOURED(log2)
LILY_FLAVOURED(sqrt)
LILY_FLAVOURED(rsqrt)
LILY_FLAVOURED(sin)
LILY_FLAVOURED(cos)
LILY_FLAVOURED(tanh)
#undef LILY_FLAVOURED

namespace fast {
METAL_FUNC float divide(float x, float y) { return lily_target::fast_divide(x, y); }
}  // namespace fast
namespace precise {
METAL_FUNC float divide(float x, float y) { return x / y; }
}  // namespace precise

#define LILY_BUILTIN(name)                                          \
  METAL_FUNC float name(float x) { return __builtin_##name##f(x); } \
  LILY_WIDEN_1(name)
LILY_BUILTIN(fabs)
LILY_BUILTIN(floor)
LILY_BUILTIN(ceil)
LILY_BUILTIN(trunc)
LILY_BUILTIN(rint)
#undef LILY_BUILTIN

METAL_FUNC float fmax(float x, float y) { return __builtin_fmaxf(x, y); }
LILY_WIDEN_2(fmax)
METAL_FUNC float fmin(float x, float y) { return __builtin_fminf(x, y); }
LILY_WIDEN_2(fmin)
#undef LILY_WIDEN_1
#undef LILY_WIDEN_2

METAL_FUNC float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
METAL_FUNC half fma(half a, half b, half c) {
  return half(__builtin_fmaf(float(a), float(b), float(c)));
}
METAL_FUNC float2 fma(float2 a, float2 b, float2 c) { return __builtin_elementwise_fma(a, b, c); }
METAL_FUNC float4 fma(float4 a, float4 b, float4 c) { return __builtin_elementwise_fma(a, b, c); }

METAL_FUNC float dot(float2 a, float2 b) { return fma(a.x, b.x, a.y * b.y); }
METAL_FUNC float dot(float3 a, float3 b) { return fma(a.x, b.x, fma(a.y, b.y, a.z * b.z)); }
METAL_FUNC float dot(float4 a, float4 b) {
  return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, a.w * b.w)));
}

METAL_FUNC bool isnan(float x) { return __builtin_isnan(x); }
METAL_FUNC bool isinf(float x) { return __builtin_isinf(x); }
METAL_FUNC bool isfinite(float x) { return __builtin_isfinite(x); }
METAL_FUNC bool signbit(float x) { return (as_type<uint>(x) >> 31) != 0; }
METAL_FUNC float copysign(float x, float sign) { return __builtin_copysignf(x, sign); }
METAL_FUNC float ldexp(float x, int exponent) {
  // Two factors, so that subnormal results and exponents past 127 come out right.
  exponent = clamp(exponent, -252, 254);
  const int half_way = exponent / 2;
  return x * as_type<float>((half_way + 127) << 23) *
         as_type<float>((exponent - half_way + 127) << 23);
}

// --- integers

template <class T>
METAL_FUNC constexpr T abs(T x) {
  return x < T(0) ? T(-x) : x;
}
METAL_FUNC float abs(float x) { return __builtin_fabsf(x); }
METAL_FUNC float2 abs(float2 x) { return fabs(x); }
METAL_FUNC float4 abs(float4 x) { return fabs(x); }

template <class T>
METAL_FUNC constexpr T popcount(T x) {
  return T(__builtin_popcountg((__make_unsigned(T))(x)));
}
// Of zero: the number of bits.
template <class T>
METAL_FUNC constexpr T clz(T x) {
  return T(__builtin_clzg((__make_unsigned(T))(x), int(sizeof(T) * 8)));
}
template <class T>
METAL_FUNC constexpr T ctz(T x) {
  return T(__builtin_ctzg((__make_unsigned(T))(x), int(sizeof(T) * 8)));
}
METAL_FUNC constexpr uint mulhi(uint a, uint b) { return uint((ulong(a) * b) >> 32); }
METAL_FUNC constexpr int mulhi(int a, int b) { return int((long(a) * b) >> 32); }
METAL_FUNC constexpr uint reverse_bits(uint x) { return __builtin_bitreverse32(x); }
METAL_FUNC constexpr uint extract_bits(uint x, uint offset, uint bits) {
  return bits == 0 ? 0 : (x >> offset) & (~0u >> (32 - bits));
}

}  // namespace metal
