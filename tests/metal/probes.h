// Runs probe kernels on the device "fibers". Knows how a dispatch is made, and no probe.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "device/device.h"
#include "probe.h"

namespace lily::test {

// Values in device memory.
template <class T>
struct Values {
  Device& device;
  View view;

  Values(Device& on, const std::vector<T>& values)
      : device(on), view(on.allocate(values.size() * sizeof(T))) {
    device.write(view, values.data(), values.size() * sizeof(T));
  }
  std::vector<T> now() const {
    std::vector<T> values(view.size_bytes / sizeof(T));
    device.read(view, values.data(), view.size_bytes);
    return values;
  }
};

inline std::shared_ptr<Device> open_fibers(uint32_t threads = 1, uint64_t seed = 1) {
  return open_device("fibers", {.threads = threads, .isa = std::to_string(seed)});
}

inline void run_probe(Device& device, const char* kernel, uint32_t threads,
                      std::vector<Binding> bindings, ProbeParams params = {}, uint32_t groups = 1) {
  Step step;
  Grid grid;
  grid.groups[0] = groups;
  grid.threads[0] = threads;
  step.add(kernel, std::move(bindings), params, grid);
  device.submit(step);
  device.wait();
}

// Numbers in [-1, 1) that depend on the seed alone.
inline std::vector<float> numbers(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f;
  }
  return values;
}

}  // namespace lily::test
