// See memory.h.
#include "device/metal/memory.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace lily::metal {
namespace {

constexpr MTL::ResourceOptions kOptions =
    MTL::ResourceStorageModeShared | MTL::ResourceHazardTrackingModeUntracked;

Ref<MTL::Buffer> new_buffer(const Gpu& gpu, size_t bytes) {
  const auto what = [&] { return "metal: cannot allocate " + human_bytes(bytes); };
  if (bytes > gpu.max_buffer_bytes()) {
    throw OutOfMemory(what() + ": a buffer of this GPU has at most " +
                      human_bytes(gpu.max_buffer_bytes()));
  }
  const Pool pool;
  auto buffer = NS::TransferPtr(gpu.device().newBuffer(bytes, kOptions));  // zeroed by Metal
  if (!buffer) {
    throw OutOfMemory(what() + ": the GPU can use " + human_bytes(gpu.working_set_bytes()) + ", " +
                      human_bytes(gpu.allocated_bytes()) + " are taken by this process");
  }
  gpu.residency().add(*buffer.get());
  return buffer;
}

}  // namespace

Memory::Memory(std::shared_ptr<const Gpu> gpu, Ref<MTL::Buffer> whole, size_t bytes)
    : BufferStorage(bytes, static_cast<std::byte*>(whole->contents())), gpu_(std::move(gpu)) {
  windows_.push_back({std::move(whole), 0, bytes});
}

Memory::Memory(std::shared_ptr<const Gpu> gpu, std::shared_ptr<const void> owner, std::byte* mapped,
               size_t bytes)
    : BufferStorage(bytes, mapped), gpu_(std::move(gpu)), owner_(std::move(owner)) {}

Memory::~Memory() {
  const Pool pool;
  for (const Window& window : windows_) gpu_->residency().remove(*window.buffer.get());
  windows_.clear();
}

std::shared_ptr<Memory> Memory::allocate(std::shared_ptr<const Gpu> gpu, size_t bytes) {
  const size_t least = std::max<size_t>(bytes, 1);
  Ref<MTL::Buffer> buffer = new_buffer(*gpu, least);
  return std::shared_ptr<Memory>(new Memory(std::move(gpu), std::move(buffer), least));
}

std::shared_ptr<Memory> Memory::wrap(std::shared_ptr<const Gpu> gpu,
                                     std::shared_ptr<const void> owner, const void* mapped,
                                     size_t bytes) {
  const bool is_on_page = reinterpret_cast<uintptr_t>(mapped) % gpu->page_bytes() == 0;
  if (!is_on_page || bytes == 0) {
    auto copy = allocate(std::move(gpu), bytes);
    if (bytes != 0) std::memcpy(copy->host(), mapped, bytes);
    copy->owner_ = std::move(owner);
    return copy;
  }
  auto* pages = static_cast<std::byte*>(const_cast<void*>(mapped));  // kernels only read them
  auto wrapped =
      std::shared_ptr<Memory>(new Memory(std::move(gpu), std::move(owner), pages, bytes));
  // What fits into one buffer fails here, if at all, and not at the first token.
  if (bytes <= wrapped->gpu().max_buffer_bytes()) wrapped->find(0, bytes);
  return wrapped;
}

Place Memory::find(size_t offset, size_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto holds = [&](const Window& window) {
    return window.begin <= offset && offset + bytes <= window.end;
  };
  const auto known = std::ranges::find_if(windows_, holds);
  const Window& window = known != windows_.end() ? *known : open_window(offset, bytes);
  return {window.buffer.get(), offset - window.begin};
}

const Memory::Window& Memory::open_window(size_t offset, size_t bytes) const {
  const Pool pool;
  const size_t page = gpu_->page_bytes();
  const size_t begin = offset / page * page;
  const size_t pages_end = (this->bytes() + page - 1) / page * page;
  const size_t most = gpu_->max_buffer_bytes() / page * page;
  const size_t end = begin + std::min(pages_end - begin, most);
  if (offset + bytes > end) {
    throw OutOfMemory("metal: a tensor of " + human_bytes(bytes) +
                      " is longer than a buffer of this GPU may be, " + human_bytes(most));
  }
  auto buffer =
      NS::TransferPtr(gpu_->device().newBuffer(host() + begin, end - begin, kOptions, nullptr));
  if (!buffer) {
    throw OutOfMemory("metal: the GPU cannot map " + human_bytes(end - begin) +
                      " of a file; it can use " + human_bytes(gpu_->working_set_bytes()));
  }
  gpu_->residency().add(*buffer.get());
  windows_.push_back({std::move(buffer), begin, end});
  return windows_.back();
}

}  // namespace lily::metal
