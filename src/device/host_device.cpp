// See host_device.h.
#include "device/host_device.h"

#include <cstring>

#include "core/host_memory.h"

namespace lily {
namespace {

// Kernels only read wrapped memory; the seam has no const buffers, the bindings' access says it.
class WrappedMemory final : public BufferStorage {
 public:
  WrappedMemory(std::shared_ptr<const void> owner, const void* mapped, size_t bytes)
      : BufferStorage(bytes, static_cast<std::byte*>(const_cast<void*>(mapped))),
        owner_(std::move(owner)) {}

 private:
  std::shared_ptr<const void> owner_;
};

}  // namespace

uint64_t HostDevice::memory_total_bytes() const { return read_host_memory().total_bytes; }
uint64_t HostDevice::memory_available_bytes() const { return read_host_memory().available_bytes; }

Buffer HostDevice::wrap(std::shared_ptr<const void> owner, const void* mapped, size_t bytes) {
  return std::make_shared<WrappedMemory>(std::move(owner), mapped, bytes);
}

void HostDevice::read(const View& from, void* to, size_t bytes) {
  std::lock_guard lock(mutex_);
  std::memcpy(to, from.slice(0, bytes).host(), bytes);
}
void HostDevice::write(const View& to, const void* from, size_t bytes) {
  std::lock_guard lock(mutex_);
  std::memcpy(to.slice(0, bytes).host(), from, bytes);
}
void HostDevice::copy(const View& to, const View& from, size_t bytes) {
  std::lock_guard lock(mutex_);
  std::memmove(to.slice(0, bytes).host(), from.slice(0, bytes).host(), bytes);
}
void HostDevice::clear(const View& view) {
  std::lock_guard lock(mutex_);
  std::memset(view.host(), 0, view.size_bytes);
}

}  // namespace lily
