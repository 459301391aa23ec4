// What compiled kernels and the runner know of each other. The first two structs have twins in
// metal/clang/fibers.h. Knows no kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lily::fibers {

enum : uint32_t {
  kLanes = 32,
  kMaxThreads = 1024,  // in a threadgroup, as on Apple's GPUs
  kMaxBindings = 31,   // of buffers, as on Apple's GPUs
  kSlotBytes = 64,     // of a lane, in what a simdgroup exchanges
  // Bytes: what NVIDIA gives without asking. Apple gives 32 KB, to which tests/metal/lint.py holds
  // what runs there.
  kThreadgroupMemory = 48 << 10
};

// A thread's place and what the kernel was bound to.
struct Launch {
  const uint64_t* buffers;
  const void* params;
  uint32_t group[3];
  uint32_t thread_index, lane, simdgroup;
};

// What LILY_KERNEL leaves in the section lily_kernels.
struct Kernel {
  const char* name;
  void (*run)(const Launch*);
  uint32_t threads, bindings, params_bytes;
  uint32_t writable;   // a bit for each binding: not bound as pointer to const
  const char* source;  // the path of its .metal file
};

// All kernels that this library or program was linked with.
std::span<const Kernel> all_kernels();

}  // namespace lily::fibers
