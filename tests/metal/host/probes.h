// For tests of the Metal device's host code: a simulated GPU whose kernels are C++ functions, so
// that they run under every sanitizer, and a device on it. Knows no kernel of metal/.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "../../native/check.h"
#include "../../native/files.h"
#include "core/error.h"
#include "device/metal/metal_device.h"
#include "simulated.h"

namespace lily::test {

// Probes have 64 threads a group, and these bindings:
//   probe_add        in, out; float: out[i] = in[i] + value, for each thread
//   probe_count      inout: adds 1 to one word
//   probe_crash      inout: fails
//   other_add        as probe_add, in a library of its own
//   probe_add_tensor as probe_add, in a library of tensor ops
inline constexpr uint32_t kProbeThreads = 64;

class ProbeExecutor final : public simulated::Executor {
 public:
  std::unique_ptr<simulated::Kernel> find(const std::string& name) override {
    for (const std::string& known : names()) {
      if (known != name) continue;
      const bool is_tensor = name.ends_with("_tensor"), adds = name.ends_with("_add") || is_tensor;
      const auto source = (is_tensor ? "units" : name.substr(0, name.find('_'))) + ".metal";
      return std::make_unique<simulated::Kernel>(
          simulated::Kernel{kProbeThreads, adds ? 2u : 1u, sizeof(float), source});
    }
    return nullptr;
  }
  std::vector<std::string> names() override {
    return {"probe_add", "probe_count", "probe_crash", "other_add", "probe_add_tensor"};
  }
  std::vector<simulated::Touched> run(const simulated::Launch& launch) override {
    if (launch.kernel == "probe_crash") throw std::runtime_error("a page fault");
    const auto span = [](const simulated::Bound& bound, size_t bytes, bool written) {
      const auto begin = reinterpret_cast<uintptr_t>(bound.memory);
      return simulated::Touched{begin, begin + bytes, written};
    };
    if (launch.kernel == "probe_count") {
      ++*reinterpret_cast<uint32_t*>(launch.buffers[0].memory);
      return {span(launch.buffers[0], 4, true)};
    }
    float value = 0;
    std::memcpy(&value, launch.params.data(), sizeof value);
    const size_t count = size_t{launch.groups[0]} * launch.threads[0];
    const auto* from = reinterpret_cast<const float*>(launch.buffers[0].memory);
    auto* to = reinterpret_cast<float*>(launch.buffers[1].memory);
    for (size_t i = 0; i < count; ++i) to[i] = from[i] + value;
    return {span(launch.buffers[0], count * 4, false), span(launch.buffers[1], count * 4, true)};
  }
};

inline constexpr metal::KernelSource kProbeSources[] = {
    {"probe", "#line 1 \"probe.metal\"\n"},
    {"other", "#line 1 \"other.metal\"\n"},
    {"broken", "#line 1 \"broken.metal\"\n"},
    {"tensor_ops/units", "#line 1 \"units.metal\"\n#define LILY_TENSOR_OPS\n"},
};

// A sound simulated machine; when it ends, nothing may be left and no rule may have been broken.
struct Machine {
  Machine() {
    simulated::set_executor(std::make_shared<ProbeExecutor>());
    simulated::reset();
  }
  ~Machine() {
    simulated::Statistics now = simulated::statistics();
    // Metal's threads let go of a command buffer a moment after they told of its end.
    for (int wait = 0; wait < 300 && is_anything_left(now); ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      now = simulated::statistics();
    }
    for (const std::string& rule : now.violations) fail(__FILE__, __LINE__, "violation: " + rule);
    if (!is_anything_left(now)) return;
    for (const auto& [name, count] : now.alive) {
      fail(__FILE__, __LINE__, std::to_string(count) + " objects of " + name + " are left");
    }
  }
  // Beside what belongs to the process.
  static bool is_anything_left(const simulated::Statistics& now) {
    return now.alive.size() > now.alive.count("NSProcessInfo");
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  simulated::Settings& settings = simulated::settings();
  Folder folder;  // the user's caches
  double most_us = 150e3;
  std::filesystem::path metallib;
  KernelCheck check;

  std::shared_ptr<Device> open() const {
    return make_metal_device({.sources = kProbeSources,
                              .metallib = metallib,
                              .cache_folder = folder.path() / "cache",
                              .most_us = most_us,
                              .check = check});
  }
};

inline std::string fact(const Device& device, std::string_view name) {
  for (const Fact& fact : device.facts()) {
    if (fact.name == name) return fact.value;
  }
  return "none";
}

struct AddParams {
  float value;
};

inline Grid groups(uint32_t count) { return {{count, 1, 1}, {kProbeThreads, 1, 1}, ""}; }

inline View floats(Device& device, size_t count, float value = 0) {
  const std::vector<float> values(count, value);
  View view(device.allocate(count * sizeof(float)));
  device.write(view, values.data(), view.size_bytes);
  return view;
}
inline std::vector<float> contents(Device& device, const View& view) {
  std::vector<float> values(view.size_bytes / sizeof(float));
  device.read(view, values.data(), view.size_bytes);
  return values;
}
inline float first(Device& device, const View& view) { return contents(device, view).at(0); }

inline void add(Step& step, const View& from, const View& to, float value, uint32_t count = 1,
                const char* kernel = "probe_add") {
  step.add(kernel, {in(from), out(to)}, AddParams{value}, groups(count));
}
inline void add_count(Step& step, const View& word) {
  step.add("probe_count", {inout(word)}, AddParams{}, groups(1));
}

}  // namespace lily::test
