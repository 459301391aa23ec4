// Scalar and vector types, their constructors, and as_type. Knows no target.
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __bf16 bfloat;

#define LILY_VECTORS(type)                                  \
  typedef type type##2 __attribute__((ext_vector_type(2))); \
  typedef type type##3 __attribute__((ext_vector_type(3))); \
  typedef type type##4 __attribute__((ext_vector_type(4)))
LILY_VECTORS(char);
LILY_VECTORS(uchar);
LILY_VECTORS(short);
LILY_VECTORS(ushort);
LILY_VECTORS(int);
LILY_VECTORS(uint);
LILY_VECTORS(long);
LILY_VECTORS(ulong);
LILY_VECTORS(float);
LILY_VECTORS(half);
LILY_VECTORS(bfloat);
#undef LILY_VECTORS

namespace metal {

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

template <class To, class From>
METAL_FUNC constexpr To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type between types of different sizes");
  return __builtin_bit_cast(To, from);
}

}  // namespace metal

// `float4(a, b, c, d)`: the language has no such constructors, so a function-like macro of the
// type's name stands in; without a bracket after it the name is still the type.
namespace lily_vectors {

template <class T>
struct Shape {
  using Element = T;
  enum { size = 1 };
};
template <class T>
struct Shape<T __attribute__((ext_vector_type(2)))> {
  using Element = T;
  enum { size = 2 };
};
template <class T>
struct Shape<T __attribute__((ext_vector_type(3)))> {
  using Element = T;
  enum { size = 3 };
};
template <class T>
struct Shape<T __attribute__((ext_vector_type(4)))> {
  using Element = T;
  enum { size = 4 };
};

// Elements are placed by constant indices, or the vector would end in memory.
template <class Vector, int at, class Part>
METAL_FUNC constexpr void put(thread Vector& vector, Part part) {
  using Element = typename Shape<Vector>::Element;
  if constexpr (Shape<Part>::size == 1) {
    vector[at] = Element(part);
  } else {
    vector[at] = Element(part[0]);
    vector[at + 1] = Element(part[1]);
    if constexpr (Shape<Part>::size > 2) vector[at + 2] = Element(part[2]);
    if constexpr (Shape<Part>::size > 3) vector[at + 3] = Element(part[3]);
  }
}

template <class Vector, int at>
METAL_FUNC constexpr void put_all(thread Vector&) {
  static_assert(at == Shape<Vector>::size, "a vector constructor has too few or too many elements");
}
template <class Vector, int at, class Part, class... Rest>
METAL_FUNC constexpr void put_all(thread Vector& vector, Part part, Rest... rest) {
  put<Vector, at>(vector, part);
  put_all<Vector, at + Shape<Part>::size>(vector, rest...);
}

template <class Vector>
METAL_FUNC constexpr Vector make() {
  return Vector{};
}
template <class Vector, class Part>
METAL_FUNC constexpr Vector make(Part part) {
  if constexpr (Shape<Part>::size == 1) {
    return (Vector)(typename Shape<Vector>::Element(part));
  } else {
    return __builtin_convertvector(part, Vector);
  }
}
template <class Vector, class First, class Second, class... Rest>
METAL_FUNC constexpr Vector make(First first, Second second, Rest... rest) {
  Vector vector{};
  put_all<Vector, 0>(vector, first, second, rest...);
  return vector;
}

}  // namespace lily_vectors

#define char2(...) lily_vectors::make<char2>(__VA_ARGS__)
#define char4(...) lily_vectors::make<char4>(__VA_ARGS__)
#define uchar2(...) lily_vectors::make<uchar2>(__VA_ARGS__)
#define uchar4(...) lily_vectors::make<uchar4>(__VA_ARGS__)
#define short2(...) lily_vectors::make<short2>(__VA_ARGS__)
#define short4(...) lily_vectors::make<short4>(__VA_ARGS__)
#define ushort2(...) lily_vectors::make<ushort2>(__VA_ARGS__)
#define ushort4(...) lily_vectors::make<ushort4>(__VA_ARGS__)
#define int2(...) lily_vectors::make<int2>(__VA_ARGS__)
#define int3(...) lily_vectors::make<int3>(__VA_ARGS__)
#define int4(...) lily_vectors::make<int4>(__VA_ARGS__)
#define uint2(...) lily_vectors::make<uint2>(__VA_ARGS__)
#define uint3(...) lily_vectors::make<uint3>(__VA_ARGS__)
#define uint4(...) lily_vectors::make<uint4>(__VA_ARGS__)
#define ulong2(...) lily_vectors::make<ulong2>(__VA_ARGS__)
#define float2(...) lily_vectors::make<float2>(__VA_ARGS__)
#define float3(...) lily_vectors::make<float3>(__VA_ARGS__)
#define float4(...) lily_vectors::make<float4>(__VA_ARGS__)
#define half2(...) lily_vectors::make<half2>(__VA_ARGS__)
#define half3(...) lily_vectors::make<half3>(__VA_ARGS__)
#define half4(...) lily_vectors::make<half4>(__VA_ARGS__)
#define bfloat2(...) lily_vectors::make<bfloat2>(__VA_ARGS__)
#define bfloat3(...) lily_vectors::make<bfloat3>(__VA_ARGS__)
#define bfloat4(...) lily_vectors::make<bfloat4>(__VA_ARGS__)
