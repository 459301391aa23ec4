// The target "fibers": every thread of a threadgroup runs on a stack of its own, and what threads
// do together is a meeting at the runner (src/device/fibers/runner.h), which checks that all of
// them come to the same one. Also the forms that kernels and threadgroup arrays are declared in.
#pragma once

// Code that works for the runner, not for a kernel: its memory accesses are not checked.
#define LILY_FIBERS_UNWATCHED __attribute__((no_sanitize("thread", "address", "coverage")))

// What the runner offers to kernels. `name` is for messages.
extern "C" {
// All lanes of a simdgroup meet; combine() sees the values of all of them, each at lane *
// LILY_FIBERS_SLOT bytes, and changes them in place. Nothing is exchanged where it is null.
#define LILY_FIBERS_SLOT 64
void lily_fibers_simd(constant const char* name, void (*combine)(thread uchar* lanes),
                      thread void* value, uint bytes);
// All threads of a group (or simdgroup) meet. `flags`: metal::mem_flags.
void lily_fibers_threadgroup_barrier(uint flags);
void lily_fibers_simdgroup_barrier(uint flags);
__attribute__((const)) uint lily_fibers_lane();  // of a thread it never changes
// The memory of the array that this `declaration` stands for: the same for all threads of a group.
threadgroup void* lily_fibers_array(constant const char* name, void (*declaration)(), uint bytes);
// Ends the step with an error at this thread.
void lily_fibers_fail(constant const char* reason);

// x86-64 compilers call this to narrow a float, and GCC's library has it since version 13 only.
#if defined(__x86_64__)
__attribute__((weak, used,
               visibility("hidden"))) LILY_FIBERS_UNWATCHED bfloat __truncsfbf2(float value) {
  const uint bits = __builtin_bit_cast(uint, value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint rounded = is_nan ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  return __builtin_bit_cast(bfloat, ushort(rounded >> 16));
}
#endif
}

template <class T>
METAL_FUNC thread T& lily_fibers_value(thread uchar* lanes, uint lane) {
  return *(thread T*)(lanes + lane * LILY_FIBERS_SLOT);
}

namespace lily_target {

// --- barriers and simdgroup operations

METAL_FUNC void threadgroup_barrier(uint flags) { lily_fibers_threadgroup_barrier(flags); }
METAL_FUNC void simdgroup_barrier(uint flags) { lily_fibers_simdgroup_barrier(flags); }

template <class T>
METAL_FUNC void collective(constant const char* name, void (*combine)(thread uchar*),
                           thread T& value) {
  static_assert(sizeof(T) <= LILY_FIBERS_SLOT, "too much for one lane to exchange");
  lily_fibers_simd(name, combine, &value, sizeof(T));
}
METAL_FUNC void meet(constant const char* name) { lily_fibers_simd(name, nullptr, nullptr, 0); }

// The order of a butterfly, as shuffles on a GPU would add.
template <class Operation, class T>
LILY_FIBERS_UNWATCHED void combine_reduce(thread uchar* lanes) {
  T values[32];
  for (uint lane = 0; lane < 32; ++lane) values[lane] = lily_fibers_value<T>(lanes, lane);
  for (uint width = 16; width > 0; width /= 2) {
    for (uint lane = 0; lane < width; ++lane) {
      values[lane] = Operation::apply(values[lane], values[lane + width]);
    }
  }
  for (uint lane = 0; lane < 32; ++lane) lily_fibers_value<T>(lanes, lane) = values[0];
}
template <class Operation, class T>
METAL_FUNC T reduce(T value) {
  collective("a simd reduction", &combine_reduce<Operation, T>, value);
  return value;
}

template <bool inclusive, class T>
LILY_FIBERS_UNWATCHED void combine_prefix_sum(thread uchar* lanes) {
  T sum = T(0);
  for (uint lane = 0; lane < 32; ++lane) {
    const T mine = lily_fibers_value<T>(lanes, lane);
    lily_fibers_value<T>(lanes, lane) = inclusive ? T(sum + mine) : sum;
    sum = T(sum + mine);
  }
}
template <bool inclusive, class T>
METAL_FUNC T prefix_sum(T value) {
  collective("a simd prefix sum", &combine_prefix_sum<inclusive, T>, value);
  return value;
}

template <class T>
struct Shuffled {
  T value;
  uint source;
};
template <class T>
LILY_FIBERS_UNWATCHED void combine_shuffle(thread uchar* lanes) {
  T values[32];
  for (uint lane = 0; lane < 32; ++lane) {
    values[lane] = lily_fibers_value<Shuffled<T>>(lanes, lane).value;
  }
  for (uint lane = 0; lane < 32; ++lane) {
    thread Shuffled<T>& mine = lily_fibers_value<Shuffled<T>>(lanes, lane);
    mine.value = values[mine.source];
  }
}
template <class T>
METAL_FUNC T exchange(constant const char* name, T value, uint source) {
  if (source >= 32) lily_fibers_fail("a simd shuffle from a lane past 31");
  Shuffled<T> mine = {value, source};
  collective(name, &combine_shuffle<T>, mine);
  return mine.value;
}
template <class T>
METAL_FUNC T shuffle(T value, uint lane) {
  return exchange("simd_shuffle or simd_broadcast", value, lane);
}
template <class T>
METAL_FUNC T shuffle_xor(T value, uint mask) {
  return exchange("simd_shuffle_xor", value, lily_fibers_lane() ^ mask);
}
template <class T>
METAL_FUNC T shuffle_up(T value, uint delta) {
  const uint lane = lily_fibers_lane();
  return exchange("simd_shuffle_up", value, lane >= delta ? lane - delta : lane);
}
template <class T>
METAL_FUNC T shuffle_down(T value, uint delta) {
  const uint lane = lily_fibers_lane();
  return exchange("simd_shuffle_down", value, lane + delta < 32 ? lane + delta : lane);
}

LILY_FIBERS_UNWATCHED inline void combine_ballot(thread uchar* lanes) {
  uint bits = 0;
  for (uint lane = 0; lane < 32; ++lane) bits |= lily_fibers_value<uint>(lanes, lane) << lane;
  for (uint lane = 0; lane < 32; ++lane) lily_fibers_value<uint>(lanes, lane) = bits;
}
METAL_FUNC uint ballot(bool condition) {
  uint bits = condition;
  collective("a simd vote", &combine_ballot, bits);
  return bits;
}

// --- mathematics: the C library, for both flavours

#define LILY_BOTH(name)                                                       \
  METAL_FUNC float precise_##name(float x) { return __builtin_##name##f(x); } \
  METAL_FUNC float fast_##name(float x) { return __builtin_##name##f(x); }
LILY_BOTH(exp)
LILY_BOTH(exp2)
LILY_BOTH(log)
LILY_BOTH(log2)
LILY_BOTH(sqrt)
LILY_BOTH(sin)
LILY_BOTH(cos)
LILY_BOTH(tanh)
#undef LILY_BOTH
METAL_FUNC float precise_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
METAL_FUNC float fast_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
METAL_FUNC float fast_divide(float x, float y) { return x / y; }

// --- kernels

// A thread's place and what the kernel was bound to; the runner has the same struct.
struct Launch {
  thread const ulong* buffers;
  constant void* params;
  uint group[3];
  uint thread_index, lane, simdgroup;
};

// An entry of the section in which the device finds all kernels; the runner has the same struct.
typedef void (*Run)(thread const Launch*);
struct Kernel {
  constant const char* name;
  Run run;
  uint threads, bindings, params_bytes, writable;
  constant const char* source;
};

template <class T>
struct Argument {
  static_assert(sizeof(T) == 0, "a kernel's arguments are device pointers and one constant struct");
};
template <class T>
struct Argument<device T*> {
  enum { buffers = 1, params_bytes = 0, is_writable = 1 };
  METAL_FUNC static device T* get(thread const Launch& launch, uint index) {
    return (device T*)launch.buffers[index];
  }
};
template <class T>
struct Argument<device const T*> : Argument<device T*> {
  enum { is_writable = 0 };
  METAL_FUNC static device const T* get(thread const Launch& launch, uint index) {
    return (device const T*)launch.buffers[index];
  }
};
template <class T>
struct Argument<constant T&> {
  enum { buffers = 0, params_bytes = sizeof(T), is_writable = 0 };
  METAL_FUNC static constant T& get(thread const Launch& launch, uint) {
    return *(constant T*)launch.params;
  }
};

// A kernel's signature: its bindings, its parameter struct, and the four of LILY_PLACE.
template <class, int... at>
struct Indices {};
template <class Signature>
struct Signed;
template <class... All>
struct Signed<void(All...)> {
  using Bound = __make_integer_seq<Indices, int, sizeof...(All) - 4>;
  template <int at>
  using At = Argument<__type_pack_element<at, All...>>;
};

template <class Signature, int... at>
constexpr uint bindings(Indices<int, at...>) {
  return (0 + ... + Signed<Signature>::template At<at>::buffers);
}
template <class Signature, int... at>
constexpr uint writable(Indices<int, at...>) {
  return (0u | ... | (uint(Signed<Signature>::template At<at>::is_writable) << at));
}
template <class Signature, int... at>
constexpr uint params_bytes(Indices<int, at...>) {
  return (0 + ... + Signed<Signature>::template At<at>::params_bytes);
}
template <class Signature, auto function, int... at>
METAL_FUNC void call(thread const Launch& launch, Indices<int, at...>) {
  function(Signed<Signature>::template At<at>::get(launch, at)...,
           uint3(launch.group[0], launch.group[1], launch.group[2]), launch.thread_index,
           launch.lane, launch.simdgroup);
}
template <class Signature, auto function>
void run(thread const Launch* launch) {
  call<Signature, function>(*launch, typename Signed<Signature>::Bound());
}

// Instantiated once for each threadgroup array of the source: its address is the array's identity.
template <class Tag>
LILY_FIBERS_UNWATCHED void declaration() {}

}  // namespace lily_target

#define LILY_KERNEL(name, threads, ...)                                                 \
  __attribute__((used, retain, section("lily_kernels"),                                 \
                 aligned(8))) constant const lily_target::Kernel lily_kernel_##name = { \
      #name,                                                                            \
      &lily_target::run<decltype(__VA_ARGS__), __VA_ARGS__>,                            \
      threads,                                                                          \
      lily_target::bindings<decltype(__VA_ARGS__)>(                                     \
          typename lily_target::Signed<decltype(__VA_ARGS__)>::Bound()),                \
      lily_target::params_bytes<decltype(__VA_ARGS__)>(                                 \
          typename lily_target::Signed<decltype(__VA_ARGS__)>::Bound()),                \
      lily_target::writable<decltype(__VA_ARGS__)>(                                     \
          typename lily_target::Signed<decltype(__VA_ARGS__)>::Bound()),                \
      __BASE_FILE__};

#define LILY_EARLY_KERNEL(name, threads, groups, ...) LILY_KERNEL(name, threads, __VA_ARGS__)
#define LILY_BRIDGE_KERNEL(name, threads, groups, ...) LILY_KERNEL(name, threads, __VA_ARGS__)
#define LILY_CROWDED_KERNEL(name, threads, groups, ...) LILY_KERNEL(name, threads, __VA_ARGS__)
#define LILY_WAIT_FOR_STEP()

// The type goes through a name of its own: `uint4 (` would be the constructor of types.h.
#define LILY_THREADGROUP(type, name, count)                                                 \
  struct lily_tag_##name {};                                                                \
  typedef type lily_array_##name[count];                                                    \
  threadgroup lily_array_##name& name = *(threadgroup lily_array_##name*)lily_fibers_array( \
      #name, &lily_target::declaration<lily_tag_##name>, sizeof(lily_array_##name))
