// The target nvptx64: simdgroups are warps, threadgroups are blocks, and a kernel is an entry that
// takes one struct by value. Also the forms that kernels and threadgroup arrays are declared in.
#pragma once

#include "nvidia_math.h"

namespace lily_target {

// --- barriers and warp operations

// Both order all memory among their threads, whatever the flags ask for.
METAL_FUNC void threadgroup_barrier(uint) { asm volatile("bar.sync 0;" ::: "memory"); }
METAL_FUNC void simdgroup_barrier(uint) { asm volatile("bar.warp.sync -1;" ::: "memory"); }

// Values travel as words of 32 bits.
template <class T>
struct Words {
  enum { count = (sizeof(T) + 3) / 4 };
  uint word[count];
};
template <class T>
METAL_FUNC Words<T> to_words(T value) {
  if constexpr (sizeof(T) == 1) {
    return Words<T>{{__builtin_bit_cast(uchar, value)}};
  } else if constexpr (sizeof(T) == 2) {
    return Words<T>{{__builtin_bit_cast(ushort, value)}};
  } else {
    return __builtin_bit_cast(Words<T>, value);
  }
}
template <class T>
METAL_FUNC T from_words(Words<T> words) {
  if constexpr (sizeof(T) == 1) {
    return __builtin_bit_cast(T, uchar(words.word[0]));
  } else if constexpr (sizeof(T) == 2) {
    return __builtin_bit_cast(T, ushort(words.word[0]));
  } else {
    return __builtin_bit_cast(T, words);
  }
}

#define LILY_SHUFFLE(name, builtin, clamp)                                                       \
  template <class T>                                                                             \
  METAL_FUNC T name(T value, uint operand) {                                                     \
    Words<T> words = to_words(value);                                                            \
    _Pragma("clang loop unroll(full)") for (int i = 0; i < Words<T>::count; ++i) words.word[i] = \
        uint(builtin(0xffffffffu, int(words.word[i]), int(operand), clamp));                     \
    return from_words<T>(words);                                                                 \
  }
LILY_SHUFFLE(shuffle, __nvvm_shfl_sync_idx_i32, 31)
LILY_SHUFFLE(shuffle_xor, __nvvm_shfl_sync_bfly_i32, 31)
LILY_SHUFFLE(shuffle_up, __nvvm_shfl_sync_up_i32, 0)
LILY_SHUFFLE(shuffle_down, __nvvm_shfl_sync_down_i32, 31)
#undef LILY_SHUFFLE

template <class Operation, class T>
METAL_FUNC T reduce(T value) {
  _Pragma("clang loop unroll(full)") for (uint width = 16; width > 0; width /= 2) {
    value = Operation::apply(value, shuffle_xor(value, width));
  }
  return value;
}
// For 32-bit integers there is one instruction.
#define LILY_REDUCE(operation, type, builtin)                              \
  template <>                                                              \
  METAL_FUNC type reduce<metal::operations::operation, type>(type value) { \
    return type(builtin(value, int(0xffffffff)));                          \
  }
LILY_REDUCE(Sum, int, __nvvm_redux_sync_add)
LILY_REDUCE(Sum, uint, __nvvm_redux_sync_add)
LILY_REDUCE(Max, int, __nvvm_redux_sync_max)
LILY_REDUCE(Max, uint, __nvvm_redux_sync_umax)
LILY_REDUCE(Min, int, __nvvm_redux_sync_min)
LILY_REDUCE(Min, uint, __nvvm_redux_sync_umin)
LILY_REDUCE(And, uint, __nvvm_redux_sync_and)
LILY_REDUCE(Or, uint, __nvvm_redux_sync_or)
#undef LILY_REDUCE

METAL_FUNC uint lane() { return uint(__nvvm_read_ptx_sreg_tid_x()) & 31u; }

template <bool inclusive, class T>
METAL_FUNC T prefix_sum(T value) {
  T sum = value;
  _Pragma("clang loop unroll(full)") for (uint delta = 1; delta < 32; delta *= 2) {
    const T before = shuffle_up(sum, delta);
    if (lane() >= delta) sum = T(sum + before);
  }
  if constexpr (inclusive) return sum;
  const T before = shuffle_up(sum, 1);
  return lane() == 0 ? T(0) : before;
}

METAL_FUNC uint ballot(bool condition) {
  return uint(__nvvm_vote_ballot_sync(0xffffffffu, condition));
}

// --- kernels

// A kernel may begin while the one before it in the step ends: launched as soon as all groups of
// that one let it, it waits here until its memory is written. The instructions come with sm_90;
// without them, or without the host's asking, kernels simply follow each other.
METAL_FUNC void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
METAL_FUNC void wait_for_step() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// What an entry takes; the host has the same struct.
enum { max_buffers = 24, max_params_bytes = 128 };
struct Arguments {
  ulong buffers[max_buffers];
  ulong params[max_params_bytes / 8];
};

template <class T>
struct Argument {
  static_assert(sizeof(T) == 0, "a kernel's arguments are device pointers and one constant struct");
};
template <class T>
struct Argument<device T*> {
  METAL_FUNC static device T* get(thread const Arguments& arguments, int index) {
    return (device T*)arguments.buffers[index];
  }
};
template <class T>
struct Argument<constant T&> {
  static_assert(sizeof(T) <= max_params_bytes, "the parameter struct is too large");
  METAL_FUNC static constant T& get(thread const Arguments& arguments, int) {
    return *(constant T*)arguments.params;
  }
};

// A kernel's signature: its bindings, its parameter struct, and the four of LILY_PLACE.
template <class, int... at>
struct Indices {};
template <class Signature>
struct Signed;
template <class... All>
struct Signed<void(All...)> {
  static_assert(sizeof...(All) - 5 <= max_buffers, "too many bindings");
  using Bound = __make_integer_seq<Indices, int, sizeof...(All) - 4>;
  template <int at>
  using At = Argument<__type_pack_element<at, All...>>;
};
template <class Signature, auto function, int... at>
METAL_FUNC void call(thread const Arguments& arguments, Indices<int, at...>) {
  const uint thread_index = uint(__nvvm_read_ptx_sreg_tid_x());
  function(Signed<Signature>::template At<at>::get(arguments, at)...,
           uint3(uint(__nvvm_read_ptx_sreg_ctaid_x()), uint(__nvvm_read_ptx_sreg_ctaid_y()),
                 uint(__nvvm_read_ptx_sreg_ctaid_z())),
           thread_index, thread_index & 31u, thread_index >> 5);
}

// A threadgroup array. The language lets only kernels declare them, and kernels may not be
// templates, so it is written as global memory and tools/metal_clang.py turns the state space of
// every `lily_shared_memory` in the PTX. The address passes through an empty instruction, or the
// compiler would fold the two address spaces into nonsense.
template <class Tag, class Array>
struct lily_shared_memory {
  __attribute__((loader_uninitialized)) static device Array array;
};
template <class Tag, class Array>
__attribute__((loader_uninitialized,
               aligned(16))) device Array lily_shared_memory<Tag, Array>::array;

template <class Tag, class Array>
METAL_FUNC threadgroup Array* shared_array() {
  ulong address = (ulong)&lily_shared_memory<Tag, Array>::array;
  asm("" : "+l"(address));
  return (threadgroup Array*)address;
}

}  // namespace lily_target

// clang splits a __kernel into a stub and a body that it does not inline; device_kernel it does
// not. The entry is found by its assembler name: in C++ it may be called as the kernel's function
// is.
#define LILY_KERNEL(name, threads, ...)                                              \
  LILY_ENTRY(name, threads, (threads == 256 ? 2 : 1), lily_target::let_next_begin(); \
             lily_target::wait_for_step(), __VA_ARGS__)
#define LILY_CROWDED_KERNEL(name, threads, groups, ...)            \
  LILY_ENTRY(name, threads, groups, lily_target::let_next_begin(); \
             lily_target::wait_for_step(), __VA_ARGS__)
#define LILY_EARLY_KERNEL(name, threads, groups, ...) \
  LILY_ENTRY(name, threads, groups, lily_target::let_next_begin(), __VA_ARGS__)
#define LILY_BRIDGE_KERNEL(name, threads, groups, ...) \
  LILY_ENTRY(name, threads, groups, (void)0, __VA_ARGS__)
#define LILY_WAIT_FOR_STEP() (lily_target::wait_for_step(), lily_target::let_next_begin())
#define LILY_ENTRY(name, threads, groups, begin, ...)                                 \
  extern "C" __attribute__((device_kernel, reqd_work_group_size(threads, 1, 1))) void \
  lily_entry_##name(lily_target::Arguments arguments) __asm__(#name);                 \
  extern "C" __attribute__((device_kernel, reqd_work_group_size(threads, 1, 1))) void \
  lily_entry_##name(lily_target::Arguments arguments) {                               \
    __asm__ volatile("// threads %0 groups %1" ::"n"(threads), "n"(groups));          \
    begin;                                                                            \
    lily_target::call<decltype(__VA_ARGS__), __VA_ARGS__>(                            \
        arguments, typename lily_target::Signed<decltype(__VA_ARGS__)>::Bound());     \
  }

// The type goes through a name of its own: `uint4 (` would be the constructor of types.h.
#define LILY_THREADGROUP(type, name, count) \
  struct lily_tag_##name {};                \
  typedef type lily_array_##name[count];    \
  threadgroup lily_array_##name& name =     \
      *lily_target::shared_array<lily_tag_##name, lily_array_##name>()
