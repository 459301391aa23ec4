// A stand-in for NVIDIA's driver library, for tests of the host code on machines without a GPU: a
// stream that runs nothing before it is waited for, two kernels, and failures on demand. Counts
// what is alive. The driver's own functions are in fake_cuda.cpp, under their real names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/cuda/driver.h"
#include "device/cuda/launches.h"

#define LILY_FAKE_EXPORT __attribute__((visibility("default")))

namespace lily::test {

struct FakeLaunch {
  std::string kernel;
  std::array<uint32_t, 3> groups, threads;
  cuda::Arguments arguments;
  bool in_graph;
  bool early = false;  // in a graph: may begin while the launch before it runs
};

struct FakeCuda {
  // What tests set.
  int devices = 1, major = 9;
  int ptx_version = 90;  // that kernels were compiled from
  size_t memory_bytes = size_t{1} << 40;
  std::string fail_symbol;  // empty: any
  int fail_after = -1;      // so many calls (of that symbol) succeed first; -1: none fails
  cuda::CUresult fail_with = 0;

  // What tests read.
  std::vector<std::string> calls;      // by symbol
  std::vector<FakeLaunch> ran;         // in the order in which the stream ran them
  size_t alive = 0, bytes_in_use = 0;  // handles and allocations
};

// Kernels: "probe_add" writes buffers[1][i] = buffers[0][i] + params.value (float, one group, so
// many floats as threads); "probe_crash" breaks the context; all others do nothing.
LILY_FAKE_EXPORT FakeCuda& fake_cuda();
// Forgets everything; nothing may be alive.
LILY_FAKE_EXPORT void reset_fake_cuda();

}  // namespace lily::test
