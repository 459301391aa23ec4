// See context.h.
#include "device/fibers/context.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define LILY_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LILY_ASAN 1
#endif
#endif

#if defined(LILY_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the registers that a called function must keep, swaps stacks, and loads the other's. Taking
// up from `lily_fibers_resume` with a saved stack pointer does the second half alone.
#if defined(__x86_64__)
asm(R"(
.text
.globl lily_fibers_switch
.hidden lily_fibers_switch
.type lily_fibers_switch, @function
.globl lily_fibers_resume
.hidden lily_fibers_resume
.p2align 4
lily_fibers_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
lily_fibers_resume:
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lily_fibers_switch, . - lily_fibers_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl lily_fibers_switch
.hidden lily_fibers_switch
.type lily_fibers_switch, %function
.globl lily_fibers_resume
.hidden lily_fibers_resume
.p2align 4
lily_fibers_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
lily_fibers_resume:
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size lily_fibers_switch, . - lily_fibers_switch
)");
#else
#error "fibers: no context switch for this processor"
#endif

extern "C" {
__attribute__((visibility("hidden"))) void lily_fibers_switch(void** from, void* to);
extern __attribute__((visibility("hidden"))) const char lily_fibers_resume[];
}

namespace lily::fibers {
namespace {

#if defined(LILY_ASAN)
constexpr size_t kStackBytes = size_t{512} << 10;  // its frames are large
#else
constexpr size_t kStackBytes = size_t{64} << 10;
#endif
constexpr size_t kGuardBytes = 4096;
// Tops of stacks at one distance would all fall into the same sets of the caches.
constexpr size_t kColours = 32, kColourBytes = 192;

}  // namespace

void start_on(Context& context, std::span<std::byte> stack, void (*entry)()) {
#if defined(LILY_ASAN)
  // The last fiber on this stack may have been left in the middle of a function.
  __asan_unpoison_memory_region(stack.data(), stack.size());
#endif
  auto top = reinterpret_cast<uintptr_t>(stack.data() + stack.size()) & ~uintptr_t{15};
#if defined(__x86_64__)
  // As if `entry` had just been called: the stack is off by the return address that it never uses.
  auto* words = reinterpret_cast<void**>(top - 8 * sizeof(void*));
  std::memset(words, 0, 8 * sizeof(void*));
  words[6] = reinterpret_cast<void*>(entry);
#else
  auto* words = reinterpret_cast<void**>(top - 160);
  std::memset(words, 0, 160);
  words[11] = reinterpret_cast<void*>(entry);
#endif
  context = {.stack_pointer = words,
             .stack_bottom = stack.data(),
             .stack_bytes = stack.size(),
             .fake_stack = nullptr};
}

void adopt_thread([[maybe_unused]] Context& context) {
#if defined(LILY_ASAN)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* bottom = nullptr;
  pthread_attr_getstack(&attributes, &bottom, &context.stack_bytes);
  context.stack_bottom = bottom;
  pthread_attr_destroy(&attributes);
#endif
}

void switch_to(Context& from, Context& to, [[maybe_unused]] bool leaves_for_good) {
#if defined(LILY_ASAN)
  __sanitizer_start_switch_fiber(leaves_for_good ? nullptr : &from.fake_stack, to.stack_bottom,
                                 to.stack_bytes);
#endif
  lily_fibers_switch(&from.stack_pointer, to.stack_pointer);
#if defined(LILY_ASAN)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void arrive_first([[maybe_unused]] Context& self) {
#if defined(LILY_ASAN)
  __sanitizer_finish_switch_fiber(self.fake_stack, nullptr, nullptr);
#endif
}

const void* resume_address() { return lily_fibers_resume; }

void Stacks::allocate(uint32_t count) {
  const size_t bytes = count * kStackBytes;
  if (bytes <= bytes_) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw OutOfMemory("fibers: cannot allocate " + human_bytes(bytes) +
                      " for stacks: " + std::strerror(errno));
  }
  if (bytes_ != 0) munmap(reinterpret_cast<void*>(begin_), bytes_);
  begin_ = reinterpret_cast<uintptr_t>(memory);
  bytes_ = bytes;
  for (uint32_t i = 0; i < count; ++i) {
    mprotect(reinterpret_cast<void*>(begin_ + i * kStackBytes), kGuardBytes, PROT_NONE);
  }
}

Stacks::~Stacks() {
  if (bytes_ != 0) munmap(reinterpret_cast<void*>(begin_), bytes_);
}

std::span<std::byte> Stacks::operator[](uint32_t index) const {
  auto* begin = reinterpret_cast<std::byte*>(begin_ + index * kStackBytes);
  return {begin + kGuardBytes, kStackBytes - kGuardBytes - index % kColours * kColourBytes};
}

bool Stacks::is_guard(uintptr_t address) const {
  return contains(address) && (address - begin_) % kStackBytes < kGuardBytes;
}

}  // namespace lily::fibers
