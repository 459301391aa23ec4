// The simulated GPU's device: what it can do, its memory, residency sets and fences. Knows no code
// and no commands.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "objects.h"
#include "state.h"

namespace lily::simulated {
namespace {

constexpr uintptr_t kMetal3 = 5001, kMetal4 = 5002, kApple1 = 1001;  // MTLGPUFamily
constexpr uint64_t kStorageModes = 0xf0, kShared = 0;

std::mutex buffers_mutex;
std::set<const MetalBuffer*> buffers;
uint64_t allocated_bytes = 0;

MetalBuffer* make_buffer(std::byte* memory, size_t bytes, uint64_t options, bool is_owned) {
  auto* made = make<MetalBuffer>("MTLBuffer");
  made->memory = memory;
  made->bytes = bytes;
  made->options = options;
  made->is_owned = is_owned;
  std::lock_guard lock(buffers_mutex);
  buffers.insert(made);
  if (is_owned) allocated_bytes += bytes;
  return made;
}

void check_buffer(size_t bytes, uint64_t options) {
  if (bytes == 0) violate("a buffer of 0 bytes");
  if ((options & kStorageModes) != kShared) violate("the host reads a buffer that is not shared");
}

MetalBuffer* new_buffer(MetalDevice*, SEL, uintptr_t bytes, uintptr_t options) {
  check_buffer(bytes, options);
  if (bytes > settings().max_buffer_bytes) violate("a buffer longer than maxBufferLength");
  if (bytes > settings().working_set_bytes) return nullptr;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0, bytes);
  return make_buffer(static_cast<std::byte*>(memory), bytes, options, true);
}

MetalBuffer* new_buffer_no_copy(MetalDevice*, SEL, const void* memory, uintptr_t bytes,
                                uintptr_t options, void* deallocator) {
  check_buffer(bytes, options);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (reinterpret_cast<uintptr_t>(memory) % page != 0) {
    violate("newBufferWithBytesNoCopy: the address is on no page boundary");
  }
  if (bytes % page != 0) violate("newBufferWithBytesNoCopy: the length is not whole pages");
  if (bytes > settings().max_buffer_bytes) violate("a buffer longer than maxBufferLength");
  if (deallocator != nullptr) violate("this simulation calls no deallocator");
  if (settings().fail_buffers_no_copy) return nullptr;
  auto* bytes_there = static_cast<std::byte*>(const_cast<void*>(memory));
  return make_buffer(bytes_there, bytes, options, false);
}

void add_residency() {
  add(
      "+MTLResidencySetDescriptor", "alloc", +[](Object*, SEL) -> Object* {
        if (settings().os_major < 15) return nullptr;  // as if there were no such class
        return make<ResidencySetDescriptor>("MTLResidencySetDescriptor");
      });
  add(
      "MTLDevice", "newResidencySetWithDescriptor:error:",
      +[](MetalDevice*, SEL, ResidencySetDescriptor* descriptor, Error**) {
        if (descriptor == nullptr) violate("a residency set without a descriptor");
        return make<ResidencySet>("MTLResidencySet");
      });
  add(
      "MTLResidencySet", "addAllocation:", +[](ResidencySet* self, SEL, MetalBuffer* buffer) {
        if (!is_alive(buffer)) violate("a residency set was given a buffer that is gone");
        self->after_commit.insert(buffer);
      });
  add(
      "MTLResidencySet", "removeAllocation:", +[](ResidencySet* self, SEL, MetalBuffer* buffer) {
        self->after_commit.erase(buffer);
      });
  add(
      "MTLResidencySet", "commit", +[](ResidencySet* self, SEL) {
        const auto before = self->now.size();
        self->now = self->after_commit;
        note([&](Statistics& all) { all.resident_buffers += self->now.size() - before; });
      });
  add(
      "MTLResidencySet", "requestResidency",
      +[](ResidencySet*, SEL) { note([](Statistics& all) { ++all.residency_requests; }); });
  add("MTLResidencySet", "endResidency", +[](ResidencySet*, SEL) {});
}

}  // namespace

MetalBuffer::~MetalBuffer() {
  {
    std::lock_guard lock(buffers_mutex);
    buffers.erase(this);
    if (is_owned) allocated_bytes -= bytes;
  }
  if (is_owned) std::free(memory);
}

bool is_alive(const MetalBuffer* buffer) {
  std::lock_guard lock(buffers_mutex);
  return buffers.contains(buffer);
}

ResidencySet::~ResidencySet() {
  note([&](Statistics& all) { all.resident_buffers -= now.size(); });
}

void add_device() {
  add("MTLDevice", "name", +[](MetalDevice*, SEL) { return make_string("Simulated GPU"); });
  add(
      "MTLDevice", "supportsFamily:", +[](MetalDevice*, SEL, uintptr_t family) {
        if (family == kMetal3) return settings().family >= 7;
        if (family == kMetal4) return settings().os_major >= 26;
        return family >= kApple1 && family < kApple1 + static_cast<uintptr_t>(settings().family);
      });
  add(
      "MTLDevice", "maxBufferLength",
      +[](MetalDevice*, SEL) -> uintptr_t { return settings().max_buffer_bytes; });
  add(
      "MTLDevice", "recommendedMaxWorkingSetSize",
      +[](MetalDevice*, SEL) { return settings().working_set_bytes; });
  add(
      "MTLDevice", "currentAllocatedSize", +[](MetalDevice*, SEL) -> uintptr_t {
        std::lock_guard lock(buffers_mutex);
        return allocated_bytes;
      });
  add(
      "MTLDevice", "maxThreadgroupMemoryLength",
      +[](MetalDevice*, SEL) -> uintptr_t { return 32 << 10; });
  add("MTLDevice", "hasUnifiedMemory", +[](MetalDevice*, SEL) { return true; });
  add("MTLDevice", "newBufferWithLength:options:", &new_buffer);
  add("MTLDevice", "newBufferWithBytesNoCopy:length:options:deallocator:", &new_buffer_no_copy);
  add("MTLDevice", "newFence", +[](MetalDevice*, SEL) { return make<Fence>("MTLFence"); });
  add("MTLBuffer", "contents", +[](MetalBuffer* self, SEL) -> void* { return self->memory; });
  add("MTLBuffer", "length", +[](MetalBuffer* self, SEL) -> uintptr_t { return self->bytes; });
  add_residency();
}

}  // namespace lily::simulated

extern "C" lily::simulated::Object* MTLCreateSystemDefaultDevice() {
  using namespace lily::simulated;
  read_environment();
  return settings().is_there ? make<MetalDevice>("MTLDevice") : nullptr;
}
