// Memory that the GPU and the host share: allocated, or the pages of a mapped file in place. Knows
// no step.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"
#include "device/metal/gpu.h"

namespace lily::metal {

// Where a part of a memory begins, for an encoder.
struct Place {
  const MTL::Buffer* buffer = nullptr;
  size_t offset_bytes = 0;
};

class Memory final : public BufferStorage {
 public:
  // Zeroed. Throws OutOfMemory.
  static std::shared_ptr<Memory> allocate(std::shared_ptr<const Gpu> gpu, size_t bytes);
  // The host's own pages, where they begin on a page (as mapped files do); a copy elsewhere. The
  // page in which they end is taken as a whole, for a map has it as a whole. Throws OutOfMemory.
  static std::shared_ptr<Memory> wrap(std::shared_ptr<const Gpu> gpu,
                                      std::shared_ptr<const void> owner, const void* mapped,
                                      size_t bytes);
  ~Memory() override;

  const Gpu& gpu() const { return *gpu_; }
  // A buffer that holds these bytes whole, and where in it they begin. Memory longer than a buffer
  // may be has several, which overlap as parts ask for it. Throws OutOfMemory for a part that is
  // longer than any buffer.
  Place find(size_t offset, size_t bytes) const;

 private:
  // A buffer over bytes [begin, end) of the memory.
  struct Window {
    Ref<MTL::Buffer> buffer;
    size_t begin, end;
  };
  Memory(std::shared_ptr<const Gpu> gpu, Ref<MTL::Buffer> whole, size_t bytes);
  Memory(std::shared_ptr<const Gpu> gpu, std::shared_ptr<const void> owner, std::byte* mapped,
         size_t bytes);
  const Window& open_window(size_t offset, size_t bytes) const;

  std::shared_ptr<const Gpu> gpu_;
  std::shared_ptr<const void> owner_;
  mutable std::mutex mutex_;
  mutable std::vector<Window> windows_;
};

}  // namespace lily::metal
