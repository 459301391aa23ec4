// Barriers and the operations of a simdgroup of 32 lanes. What the lanes exchange is the target's
// business (lily_target::reduce, scan, shuffle, ballot); sums come out in one order on all targets.
#pragma once

namespace metal {

enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_device_and_threadgroup = 3
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }

METAL_FUNC void threadgroup_barrier(mem_flags flags) {
  lily_target::threadgroup_barrier(uint(flags));
}
METAL_FUNC void simdgroup_barrier(mem_flags flags) { lily_target::simdgroup_barrier(uint(flags)); }

template <class T>
METAL_FUNC T simd_sum(T x) {
  return lily_target::reduce<operations::Sum>(x);
}
template <class T>
METAL_FUNC T simd_product(T x) {
  return lily_target::reduce<operations::Product>(x);
}
template <class T>
METAL_FUNC T simd_max(T x) {
  return lily_target::reduce<operations::Max>(x);
}
template <class T>
METAL_FUNC T simd_min(T x) {
  return lily_target::reduce<operations::Min>(x);
}
template <class T>
METAL_FUNC T simd_and(T x) {
  return lily_target::reduce<operations::And>(x);
}
template <class T>
METAL_FUNC T simd_or(T x) {
  return lily_target::reduce<operations::Or>(x);
}
template <class T>
METAL_FUNC T simd_prefix_inclusive_sum(T x) {
  return lily_target::prefix_sum<true>(x);
}
template <class T>
METAL_FUNC T simd_prefix_exclusive_sum(T x) {
  return lily_target::prefix_sum<false>(x);
}

template <class T>
METAL_FUNC T simd_shuffle(T x, ushort lane) {
  return lily_target::shuffle(x, lane);
}
template <class T>
METAL_FUNC T simd_broadcast(T x, ushort lane) {
  return lily_target::shuffle(x, lane);
}
template <class T>
METAL_FUNC T simd_broadcast_first(T x) {
  return lily_target::shuffle(x, 0);
}
template <class T>
METAL_FUNC T simd_shuffle_xor(T x, ushort mask) {
  return lily_target::shuffle_xor(x, mask);
}
// Lanes without a source keep their own value.
template <class T>
METAL_FUNC T simd_shuffle_up(T x, ushort delta) {
  return lily_target::shuffle_up(x, delta);
}
template <class T>
METAL_FUNC T simd_shuffle_down(T x, ushort delta) {
  return lily_target::shuffle_down(x, delta);
}

// In Metal simd_vote is a class; temporaries of classes have no address space here, so that it is
// its bits. Kernels write simd_vote::vote_t(simd_ballot(x)).
struct simd_vote {
  typedef ulong vote_t;
};
METAL_FUNC ulong simd_ballot(bool x) { return lily_target::ballot(x); }
METAL_FUNC bool simd_any(bool x) { return lily_target::ballot(x) != 0; }
METAL_FUNC bool simd_all(bool x) { return lily_target::ballot(x) == 0xffffffffu; }

}  // namespace metal
