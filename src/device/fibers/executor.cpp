// See executor.h.
#include "device/fibers/executor.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "core/error.h"
#include "device/fibers/faults.h"

namespace lily::fibers {
namespace {

constexpr size_t kMaxParamsBytes = 4096;  // of setBytes, on Metal

}  // namespace

Executor::Executor(uint32_t threads, uint64_t seed)
    : pool_(threads ? threads : std::max(1u, std::thread::hardware_concurrency())),
      runners_(pool_.num_threads()),
      seed_(seed) {
  catch_faults();
  for (const Kernel& kernel : all_kernels()) {
    if (!kernels_.emplace(kernel.name, &kernel).second) {
      throw DeviceError("fibers: two kernels are named '" + std::string(kernel.name) + "'");
    }
  }
}

const Kernel* Executor::find(std::string_view name) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : found->second;
}

const Kernel& Executor::check(const Dispatch& dispatch) const {
  const std::string name = dispatch.kernel + dispatch.grid.variant;
  const Kernel* found = find(name);
  if (found == nullptr) throw InvalidInput("fibers: there is no kernel named '" + name + "'");
  const Kernel& kernel = *found;
  const auto expect = [&](const char* what, uint64_t given, uint64_t expected) {
    if (given == expected) return;
    throw InvalidInput("fibers: kernel '" + name + "': " + what + ": " + grouped(given) +
                       " given, " + grouped(expected) + " expected");
  };
  expect("bindings", dispatch.bindings.size(), kernel.bindings);
  expect("bytes of params", dispatch.params.size(), kernel.params_bytes);
  const Grid& grid = dispatch.grid;
  expect("threads in a group", grid.threads[0], kernel.threads);
  expect("threads of the second and third axis", uint64_t{grid.threads[1]} * grid.threads[2], 1);
  expect("threads past whole simdgroups", kernel.threads % kLanes, 0);
  if (kernel.threads == 0 || kernel.threads > kMaxThreads) {
    throw InvalidInput("fibers: kernel '" + name + "' has " + grouped(kernel.threads) +
                       " threads in a group, expected up to " + grouped(kMaxThreads));
  }
  if (kernel.bindings >= kMaxBindings) {  // one more holds the params
    throw InvalidInput("fibers: kernel '" + name + "' has " + grouped(kernel.bindings) +
                       " bindings, expected less than " + grouped(kMaxBindings));
  }
  if (dispatch.params.size() > kMaxParamsBytes) {
    throw InvalidInput("fibers: kernel '" + name + "' has " + grouped(dispatch.params.size()) +
                       " bytes of params, expected up to " + grouped(kMaxParamsBytes));
  }
  return kernel;
}

Job Executor::prepare(const Dispatch& dispatch) {
  Job job;
  job.kernel = &check(dispatch);
  job.label = job.kernel->name;
  for (const Binding& binding : dispatch.bindings) {
    const auto begin = reinterpret_cast<uintptr_t>(binding.view.host());
    const bool writable = binding.access != Access::in;
    job.bound.push_back({begin, begin == 0 ? 0 : begin + binding.view.size_bytes, writable});
    job.buffers.push_back(begin);
  }
  job.params.resize((dispatch.params.size() + 7) / 8 + 1);
  if (!dispatch.params.empty()) {
    std::memcpy(job.params.data(), dispatch.params.data(), dispatch.params.size());
  }
  seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
  job.seed = seed_;
  return job;
}

void Executor::run_part(uint32_t thread, const Job& job, const Dispatch& dispatch) {
  try {
    if (!runners_[thread]) runners_[thread] = std::make_unique<Runner>();
    runners_[thread]->enter();
    const SignalStack signal_stack;
    runners_[thread]->forget_touched();
    for (size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < order_.size();) {
      const uint32_t* groups = dispatch.grid.groups;
      const uint64_t plane = uint64_t{groups[0]} * groups[1];
      const uint64_t index = order_[i];
      runners_[thread]->run(job, {static_cast<uint32_t>(index % groups[0]),
                                  static_cast<uint32_t>(index % plane / groups[0]),
                                  static_cast<uint32_t>(index / plane)});
    }
    std::lock_guard lock(result_mutex_);
    runners_[thread]->report_touched(touched_);
  } catch (...) {
    next_.store(order_.size(), std::memory_order_relaxed);
    std::lock_guard lock(result_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

std::vector<Touched> Executor::run(const Dispatch& dispatch) {
  const Job job = prepare(dispatch);
  const uint32_t* groups = dispatch.grid.groups;
  order_.resize(uint64_t{groups[0]} * groups[1] * groups[2]);
  std::iota(order_.begin(), order_.end(), uint64_t{0});
  uint64_t random = job.seed;
  for (size_t i = order_.size(); i > 1; --i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    std::swap(order_[i - 1], order_[(random >> 33) % i]);
  }
  next_.store(0, std::memory_order_relaxed);
  failure_ = nullptr;
  touched_.clear();
  if (order_.size() == 1) {
    run_part(0, job, dispatch);
  } else {
    pool_.run([&](uint32_t thread) { run_part(thread, job, dispatch); });
  }
  if (failure_) std::rethrow_exception(failure_);
  return std::move(touched_);
}

}  // namespace lily::fibers
