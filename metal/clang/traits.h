// Type traits and numeric_limits. Values are enumerators or functions: static data members would
// need an address space.
#pragma once

namespace metal {

template <class T, T v>
struct integral_constant {
  typedef T value_type;
  typedef integral_constant type;
  enum : T { value = v };
  constexpr operator T() const { return v; }
};
template <bool b>
using bool_constant = integral_constant<bool, b>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;

template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};

template <bool condition, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool condition, class T = void>
using enable_if_t = typename enable_if<condition, T>::type;

template <bool condition, class T, class F>
struct conditional {
  using type = T;
};
template <class T, class F>
struct conditional<false, T, F> {
  using type = F;
};
template <bool condition, class T, class F>
using conditional_t = typename conditional<condition, T, F>::type;

template <class A, class B>
constexpr constant bool is_same_v = is_same<A, B>::value;

template <class T>
struct numeric_limits {
  static constexpr T max() { return __is_signed(T) ? T(~(1ul << (sizeof(T) * 8 - 1))) : T(~T(0)); }
  static constexpr T min() { return T(~max()); }
  static constexpr T lowest() { return min(); }
};
template <>
struct numeric_limits<float> {
  static constexpr float max() { return 0x1.fffffep127f; }
  static constexpr float min() { return 0x1p-126f; }
  static constexpr float lowest() { return -max(); }
  static constexpr float epsilon() { return 0x1p-23f; }
  static constexpr float infinity() { return __builtin_inff(); }
  static constexpr float quiet_NaN() { return __builtin_nanf(""); }
};
template <>
struct numeric_limits<half> {
  static constexpr half max() { return half(65504.0f); }
  static constexpr half min() { return half(0x1p-14f); }
  static constexpr half lowest() { return half(-65504.0f); }
  static constexpr half infinity() { return half(__builtin_inff()); }
};
template <>
struct numeric_limits<bfloat> {
  static constexpr bfloat max() { return bfloat(0x1.fep127f); }
  static constexpr bfloat min() { return bfloat(0x1p-126f); }
  static constexpr bfloat lowest() { return bfloat(-0x1.fep127f); }
  static constexpr bfloat infinity() { return bfloat(__builtin_inff()); }
};

}  // namespace metal

#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f
#define M_PI_F 3.14159274101257324219f
#define M_LOG2E_F 1.44269502162933349609f
#define M_LN2_F 0.69314718246459960938f
