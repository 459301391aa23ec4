// See fiber_device.h. Steps run on the caller's thread and the pool before submit returns.
#include "device/fibers/fiber_device.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <unordered_map>

#include "core/error.h"
#include "device/cpu/thread_pool.h"
#include "device/fibers/faults.h"
#include "device/fibers/runner.h"
#include "device/host_device.h"

namespace lily {
namespace {

using fibers::Job;
using fibers::Kernel;
using fibers::Runner;

constexpr size_t kMaxParamsBytes = 4096;  // of setBytes, on Metal

class OwnedMemory final : public BufferStorage {
 public:
  explicit OwnedMemory(size_t bytes) : BufferStorage(bytes, allocate(bytes)) {}
  ~OwnedMemory() override { std::free(host()); }

 private:
  static std::byte* allocate(size_t bytes) {
    constexpr size_t kAlignment = 256;  // of buffers on GPUs, at least
    const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = std::aligned_alloc(kAlignment, whole);
    if (memory == nullptr) {
      throw OutOfMemory("fibers: cannot allocate " + human_bytes(bytes));
    }
    std::memset(memory, 0, whole);
    return static_cast<std::byte*>(memory);
  }
};

uint64_t parse_seed(const std::string& text) {
  uint64_t seed = 1;
  const char* end = text.data() + text.size();
  if (!text.empty() && std::from_chars(text.data(), end, seed).ptr != end) {
    throw InvalidInput("fibers: isa '" + text + "' is no seed; expected a number or nothing");
  }
  return seed;
}

class FiberDevice final : public HostDevice {
 public:
  explicit FiberDevice(const DeviceOptions& options)
      : pool_(options.threads ? options.threads
                              : std::max(1u, std::thread::hardware_concurrency())),
        runners_(pool_.num_threads()),
        seed_(parse_seed(options.isa)) {
    fibers::catch_faults();
    for (const Kernel& kernel : fibers::all_kernels()) {
      if (!kernels_.emplace(kernel.name, &kernel).second) {
        throw DeviceError("fibers: two kernels are named '" + std::string(kernel.name) + "'");
      }
    }
  }

  std::string_view name() const override { return "fibers"; }
  std::string description() const override {
    return "Metal kernels on fibers, " + std::to_string(kernels_.size()) + " kernels, " +
           std::to_string(pool_.num_threads()) +
           (pool_.num_threads() == 1 ? " thread" : " threads");
  }
  DType activation_dtype() const override { return DType::bf16; }
  size_t weight_alignment_bytes() const override { return 16; }

  Buffer allocate(size_t bytes) override {
    return std::make_shared<OwnedMemory>(bytes < 1 ? 1 : bytes);
  }
  void submit(const Step& step) override;

 private:
  const Kernel& find(const Dispatch& dispatch) const;
  Job prepare(const Dispatch& dispatch);
  void run(const Dispatch& dispatch);
  void run_part(uint32_t thread, const Job& job, const Dispatch& dispatch);

  ThreadPool pool_;
  std::vector<std::unique_ptr<Runner>> runners_;  // one for each thread, made there
  std::unordered_map<std::string_view, const Kernel*> kernels_;
  uint64_t seed_;

  // Of the dispatch that is running.
  std::vector<uint64_t> order_;  // its threadgroups
  std::atomic<size_t> next_{0};  // of them
  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // the first
};

// The kernel of a dispatch, which must fit it in every respect that a GPU would not check.
const Kernel& FiberDevice::find(const Dispatch& dispatch) const {
  const std::string name = dispatch.kernel + dispatch.grid.variant;
  const auto found = kernels_.find(name);
  if (found == kernels_.end()) {
    throw InvalidInput("fibers: there is no kernel named '" + name + "'");
  }
  const Kernel& kernel = *found->second;
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
  expect("threads past whole simdgroups", kernel.threads % fibers::kLanes, 0);
  if (kernel.threads == 0 || kernel.threads > fibers::kMaxThreads) {
    throw InvalidInput("fibers: kernel '" + name + "' has " + grouped(kernel.threads) +
                       " threads in a group, expected up to " + grouped(fibers::kMaxThreads));
  }
  if (kernel.bindings >= fibers::kMaxBindings) {  // one more holds the params
    throw InvalidInput("fibers: kernel '" + name + "' has " + grouped(kernel.bindings) +
                       " bindings, expected less than " + grouped(fibers::kMaxBindings));
  }
  if (dispatch.params.size() > kMaxParamsBytes) {
    throw InvalidInput("fibers: kernel '" + name + "' has " + grouped(dispatch.params.size()) +
                       " bytes of params, expected up to " + grouped(kMaxParamsBytes));
  }
  return kernel;
}

Job FiberDevice::prepare(const Dispatch& dispatch) {
  Job job;
  job.kernel = &find(dispatch);
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

void FiberDevice::run_part(uint32_t thread, const Job& job, const Dispatch& dispatch) {
  try {
    if (!runners_[thread]) runners_[thread] = std::make_unique<Runner>();
    runners_[thread]->enter();
    const fibers::SignalStack signal_stack;
    for (size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < order_.size();) {
      const uint32_t* groups = dispatch.grid.groups;
      const uint64_t plane = uint64_t{groups[0]} * groups[1];
      const uint64_t index = order_[i];
      runners_[thread]->run(job, {static_cast<uint32_t>(index % groups[0]),
                                  static_cast<uint32_t>(index % plane / groups[0]),
                                  static_cast<uint32_t>(index / plane)});
    }
  } catch (...) {
    next_.store(order_.size(), std::memory_order_relaxed);
    std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void FiberDevice::run(const Dispatch& dispatch) {
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
  if (order_.size() == 1) {
    run_part(0, job, dispatch);
  } else {
    pool_.run([&](uint32_t thread) { run_part(thread, job, dispatch); });
  }
  if (failure_) std::rethrow_exception(failure_);
}

void FiberDevice::submit(const Step& step) {
  if (pool_.is_in_forked_process()) {
    throw DeviceError(
        "fibers: this process was forked from the one that opened the device; "
        "load the engine in this process");
  }
  std::lock_guard lock(mutex_);
  for (const Dispatch& dispatch : step.dispatches()) find(dispatch);
  for (const Dispatch& dispatch : step.dispatches()) run(dispatch);
}

}  // namespace

std::shared_ptr<Device> make_fiber_device(const DeviceOptions& options) {
  return std::make_shared<FiberDevice>(options);
}

}  // namespace lily
