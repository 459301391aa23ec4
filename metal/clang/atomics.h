// 32-bit atomics with relaxed order, in device and threadgroup memory.
#pragma once

namespace metal {

// The language has types of these names, without members to work on.
#define atomic_uint lily_atomic_uint
#define atomic_int lily_atomic_int
struct atomic_uint {
  uint value;
};
struct atomic_int {
  int value;
};

enum memory_order { memory_order_relaxed = __ATOMIC_RELAXED };

#define LILY_ATOMIC_UPDATE(name, builtin, space, atomic, type)                      \
  METAL_FUNC type name(volatile space atomic* object, type operand, memory_order) { \
    return builtin(&object->value, operand, __ATOMIC_RELAXED);                      \
  }
#define LILY_ATOMICS(space, atomic, type)                                                   \
  METAL_FUNC type atomic_load_explicit(const volatile space atomic* object, memory_order) { \
    return __atomic_load_n(&object->value, __ATOMIC_RELAXED);                               \
  }                                                                                         \
  METAL_FUNC void atomic_store_explicit(volatile space atomic* object, type desired,        \
                                        memory_order) {                                     \
    __atomic_store_n(&object->value, desired, __ATOMIC_RELAXED);                            \
  }                                                                                         \
  LILY_ATOMIC_UPDATE(atomic_exchange_explicit, __atomic_exchange_n, space, atomic, type)    \
  LILY_ATOMIC_UPDATE(atomic_fetch_add_explicit, __atomic_fetch_add, space, atomic, type)    \
  LILY_ATOMIC_UPDATE(atomic_fetch_sub_explicit, __atomic_fetch_sub, space, atomic, type)    \
  LILY_ATOMIC_UPDATE(atomic_fetch_or_explicit, __atomic_fetch_or, space, atomic, type)      \
  LILY_ATOMIC_UPDATE(atomic_fetch_and_explicit, __atomic_fetch_and, space, atomic, type)    \
  LILY_ATOMIC_UPDATE(atomic_fetch_max_explicit, __atomic_fetch_max, space, atomic, type)    \
  LILY_ATOMIC_UPDATE(atomic_fetch_min_explicit, __atomic_fetch_min, space, atomic, type)
LILY_ATOMICS(device, atomic_uint, uint)
LILY_ATOMICS(device, atomic_int, int)
LILY_ATOMICS(threadgroup, atomic_uint, uint)
LILY_ATOMICS(threadgroup, atomic_int, int)
#undef LILY_ATOMICS
#undef LILY_ATOMIC_UPDATE

}  // namespace metal
