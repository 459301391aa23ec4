// See fiber_device.h. Steps run on the caller's thread and the pool before submit returns.
#include "device/fibers/fiber_device.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "core/error.h"
#include "device/fibers/executor.h"
#include "device/host_device.h"

namespace lily {
namespace {

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
      : executor_(options.threads, parse_seed(options.isa)) {}

  std::string_view name() const override { return "fibers"; }
  std::string description() const override {
    return "Metal kernels on fibers, " + std::to_string(executor_.num_kernels()) + " kernels, " +
           std::to_string(executor_.num_threads()) +
           (executor_.num_threads() == 1 ? " thread" : " threads");
  }
  DType activation_dtype() const override { return DType::bf16; }
  size_t weight_alignment_bytes() const override { return 16; }

  Buffer allocate(size_t bytes) override {
    return std::make_shared<OwnedMemory>(bytes < 1 ? 1 : bytes);
  }
  Ticket submit(const Step& step) override;

 private:
  fibers::Executor executor_;
};

Ticket FiberDevice::submit(const Step& step) {
  if (executor_.is_in_forked_process()) {
    throw DeviceError(
        "fibers: this process was forked from the one that opened the device; "
        "load the engine in this process");
  }
  std::lock_guard lock(mutex_);
  for (const Dispatch& dispatch : step.dispatches()) executor_.check(dispatch);
  for (const Dispatch& dispatch : step.dispatches()) executor_.run(dispatch);
  return 0;
}

}  // namespace

std::shared_ptr<Device> make_fiber_device(const DeviceOptions& options) {
  return std::make_shared<FiberDevice>(options);
}

}  // namespace lily
