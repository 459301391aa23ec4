// See context.h.
#include "device/cuda/context.h"

#include <unistd.h>

#include <cstring>

#include "core/error.h"

namespace lily::cuda {
namespace {

// bfloat16 arithmetic and the matrix instructions of the kernels begin there.
constexpr int kLeastMajor = 8;

int attribute(const Driver& driver, int which, CUdevice device) {
  int value = 0;
  driver.call(driver.device_get_attribute, &value, which, device);
  return value;
}

CUdeviceptr allocate_on_device(const Context& context, size_t bytes) {
  const Driver& driver = context.driver();
  CUdeviceptr address = 0;
  const CUresult result = driver.memory_alloc.address(&address, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    size_t free = 0, total = 0;
    const bool known = driver.memory_info.address(&free, &total) == CUDA_SUCCESS;
    throw OutOfMemory(
        "cuda: cannot allocate " + human_bytes(bytes) +
        (known ? "; " + human_bytes(free) + " of the GPU's " + human_bytes(total) + " are free"
               : std::string()));
  }
  if (result != CUDA_SUCCESS) driver.fail("cuMemAlloc of " + human_bytes(bytes), result);
  return address;
}

}  // namespace

Context::Context(const std::string& library) : driver_(library), process_(getpid()) {
  driver_.call(driver_.init, 0u);
  int count = 0;
  driver_.call(driver_.device_get_count, &count);
  if (count == 0) throw DeviceError("cuda: the NVIDIA driver shows no GPU (CUDA_VISIBLE_DEVICES?)");
  driver_.call(driver_.device_get, &device_, 0);
  describe();
  driver_.call(driver_.primary_context_retain, &context_, device_);
  try {
    enter();
    CUstream stream = nullptr;
    // Not ordered with the default stream, which belongs to whoever shares the context.
    driver_.call(driver_.stream_create, &stream, unsigned{CU_STREAM_NON_BLOCKING});
    stream_ = Handle<CUstream>(stream, driver_.stream_destroy);
  } catch (...) {
    driver_.primary_context_release.address(device_);
    throw;
  }
}

Context::~Context() {
  if (!try_enter()) {
    stream_.forget();
    return;
  }
  driver_.stream_synchronize.address(stream_.get());
  stream_ = Handle<CUstream>();
  driver_.primary_context_release.address(device_);
}

void Context::describe() {
  char name[256] = "";
  driver_.call(driver_.device_get_name, name, int{sizeof name}, device_);
  const int major = attribute(driver_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_);
  const int minor = attribute(driver_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_);
  const std::string capability = std::to_string(major) + "." + std::to_string(minor);
  if (major < kLeastMajor) {
    throw DeviceError("cuda: " + std::string(name) + " has compute capability " + capability +
                      ", expected " + std::to_string(kLeastMajor) + ".0 or later");
  }
  const int units = attribute(driver_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
  int version = 0;
  driver_.call(driver_.driver_get_version, &version);
  description_ = std::string(name) + ", " + std::to_string(units) +
                 " multiprocessors, compute capability " + capability + ", CUDA driver " +
                 std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

bool Context::is_in_forked_process() const { return getpid() != process_; }

void Context::enter() const {
  if (is_in_forked_process()) {
    throw DeviceError(
        "cuda: this process was forked from the one that opened the device; "
        "load the engine in this process");
  }
  driver_.call(driver_.context_set_current, context_);
}

bool Context::try_enter() const noexcept {
  return !is_in_forked_process() && driver_.context_set_current.address(context_) == CUDA_SUCCESS;
}

DeviceMemory::DeviceMemory(std::shared_ptr<const Context> context, size_t bytes,
                           CUdeviceptr address, std::byte* host,
                           std::shared_ptr<const void> keeps_alive)
    : BufferStorage(bytes, host),
      context_(std::move(context)),
      keeps_alive_(std::move(keeps_alive)),
      address_(address) {}

std::shared_ptr<DeviceMemory> DeviceMemory::allocate(std::shared_ptr<const Context> context,
                                                     size_t bytes,
                                                     std::shared_ptr<const void> keeps_alive) {
  const CUdeviceptr address = allocate_on_device(*context, bytes);
  return std::shared_ptr<DeviceMemory>(
      new DeviceMemory(std::move(context), bytes, address, nullptr, std::move(keeps_alive)));
}

std::shared_ptr<DeviceMemory> DeviceMemory::allocate_shared(std::shared_ptr<const Context> context,
                                                            size_t bytes) {
  const Driver& driver = context->driver();
  void* host = nullptr;
  driver.call_about(" of " + human_bytes(bytes), driver.host_memory_alloc, &host, bytes);
  std::memset(host, 0, bytes);
  const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(host);
  return std::shared_ptr<DeviceMemory>(
      new DeviceMemory(std::move(context), bytes, address, static_cast<std::byte*>(host), nullptr));
}

DeviceMemory::~DeviceMemory() {
  if (!context_->try_enter()) return;
  // A step that was submitted may still read it, though its last handle is gone.
  context_->driver().stream_synchronize.address(context_->stream());
  if (host() != nullptr) {
    context_->driver().host_memory_free.address(host());
  } else {
    context_->driver().memory_free.address(address_);
  }
}

}  // namespace lily::cuda
