// What compiled kernels call: the functions that metal/clang/fibers.h declares, and the ones that
// clang's -fsanitize=thread puts at every access to memory, answered here instead of by that
// sanitizer's library. Decides nothing: all of it goes to the runner of this thread.
#include <cstring>

#include "device/fibers/kernel.h"
#include "device/fibers/runner.h"

using lily::fibers::running_here;
using lily::fibers::Touch;

#define LILY_CALL extern "C" __attribute__((visibility("hidden")))
#define LILY_SITE __builtin_return_address(0)

// --- kernels

extern "C" {
// The ends of the section, as linkers name them; weak, for a build may have no kernel at all.
extern __attribute__((weak, visibility("hidden"))) const lily::fibers::Kernel __start_lily_kernels;
extern __attribute__((weak, visibility("hidden"))) const lily::fibers::Kernel __stop_lily_kernels;
}

namespace lily::fibers {

std::span<const Kernel> all_kernels() {
  const Kernel* begin = &__start_lily_kernels;
  return {begin, static_cast<size_t>(&__stop_lily_kernels - begin)};
}

}  // namespace lily::fibers

// --- what threads do together

LILY_CALL void lily_fibers_simd(const char* name, void (*combine)(std::byte*), std::byte* value,
                                uint32_t bytes) {
  running_here->meet_simdgroup({name, LILY_SITE, combine, value, bytes});
}
LILY_CALL void lily_fibers_threadgroup_barrier(uint32_t flags) {
  running_here->threadgroup_barrier(flags, LILY_SITE);
}
LILY_CALL void lily_fibers_simdgroup_barrier(uint32_t flags) {
  running_here->simdgroup_barrier(flags, LILY_SITE);
}
LILY_CALL uint32_t lily_fibers_lane() { return running_here->lane(); }
LILY_CALL std::byte* lily_fibers_array(const char* name, void (*declaration)(), uint32_t bytes) {
  return running_here->array(name, reinterpret_cast<const void*>(declaration), bytes, LILY_SITE);
}
LILY_CALL void lily_fibers_fail(const char* reason) { running_here->fail(reason, LILY_SITE); }

// --- accesses to memory

namespace {

inline void touch(const void* address, size_t bytes, Touch kind, const void* site) {
  running_here->touch(reinterpret_cast<uintptr_t>(address), static_cast<uint32_t>(bytes), kind,
                      site);
}

}  // namespace

#define LILY_ACCESS(name, bytes, kind) \
  LILY_CALL void name(void* address) { touch(address, bytes, Touch::kind, LILY_SITE); }
#define LILY_ACCESSES(bytes)                             \
  LILY_ACCESS(__tsan_read##bytes, bytes, read)           \
  LILY_ACCESS(__tsan_write##bytes, bytes, write)         \
  LILY_ACCESS(__tsan_unaligned_read##bytes, bytes, read) \
  LILY_ACCESS(__tsan_unaligned_write##bytes, bytes, write)
LILY_ACCESSES(1)
LILY_ACCESSES(2)
LILY_ACCESSES(4)
LILY_ACCESSES(8)
LILY_ACCESSES(16)

LILY_CALL void __tsan_init() {}

LILY_CALL void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return to;
  touch(from, bytes, Touch::read, LILY_SITE);
  touch(to, bytes, Touch::write, LILY_SITE);
  return std::memmove(to, from, bytes);
}
LILY_CALL void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  return __tsan_memcpy(to, from, bytes);
}
LILY_CALL void* __tsan_memset(void* to, int value, size_t bytes) {
  if (bytes == 0) return to;
  touch(to, bytes, Touch::write, LILY_SITE);
  return std::memset(to, value, bytes);
}

// Metal has relaxed atomics only, so the order asked for is that.
LILY_CALL uint32_t __tsan_atomic32_load(const volatile uint32_t* at, int) {
  touch(const_cast<const uint32_t*>(at), 4, Touch::atomic_read, LILY_SITE);
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}
LILY_CALL void __tsan_atomic32_store(volatile uint32_t* at, uint32_t value, int) {
  touch(const_cast<const uint32_t*>(at), 4, Touch::atomic, LILY_SITE);
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}
#define LILY_UPDATE(name, builtin)                                                        \
  LILY_CALL uint32_t __tsan_atomic32_##name(volatile uint32_t* at, uint32_t value, int) { \
    touch(const_cast<const uint32_t*>(at), 4, Touch::atomic, LILY_SITE);                  \
    return builtin(at, value, __ATOMIC_RELAXED);                                          \
  }
LILY_UPDATE(exchange, __atomic_exchange_n)
LILY_UPDATE(fetch_add, __atomic_fetch_add)
LILY_UPDATE(fetch_sub, __atomic_fetch_sub)
LILY_UPDATE(fetch_and, __atomic_fetch_and)
LILY_UPDATE(fetch_or, __atomic_fetch_or)
LILY_UPDATE(fetch_xor, __atomic_fetch_xor)
LILY_CALL uint32_t __tsan_atomic32_compare_exchange_val(volatile uint32_t* at, uint32_t expected,
                                                        uint32_t value, int, int) {
  touch(const_cast<const uint32_t*>(at), 4, Touch::atomic, LILY_SITE);
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
