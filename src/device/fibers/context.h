// Stacks, and switching between them without the kernel's help: a few nanoseconds each. Knows
// neither kernels nor who switches when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lily::fibers {

// Where a stack's owner stopped. Only switch_to and start_on write it.
struct Context {
  void* stack_pointer = nullptr;
  // What AddressSanitizer wants to be told; unused without it.
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
};

// Makes `context` begin `entry` on this stack when it is first switched to. `entry` never returns.
void start_on(Context& context, std::span<std::byte> stack, void (*entry)());

// Describes the calling thread's own stack, so that fibers can switch back to it.
void adopt_thread(Context& context);

// Stops here, goes on there; returns when somebody switches back. `leaves_for_good`: nobody will.
void switch_to(Context& from, Context& to, bool leaves_for_good = false);
// The first thing that an entry does.
void arrive_first(Context& self);

// The address that continues a context when its stack pointer is loaded: how a signal handler
// leaves a broken fiber.
const void* resume_address();

// Memory for stacks of equal size, each behind a page that faults.
class Stacks {
 public:
  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  // Throws OutOfMemory.
  void allocate(uint32_t count);
  std::span<std::byte> operator[](uint32_t index) const;
  bool contains(uintptr_t address) const { return address - begin_ < bytes_; }
  // Whether the address is in one of the faulting pages: that stack was too small.
  bool is_guard(uintptr_t address) const;

 private:
  uintptr_t begin_ = 0;
  size_t bytes_ = 0;
};

}  // namespace lily::fibers
