// See gpu.h.
#include "device/metal/gpu.h"

#include <unistd.h>

#include "core/error.h"

namespace lily::metal {
namespace {

std::string os_version() {
  const NS::OperatingSystemVersion version =
      NS::ProcessInfo::processInfo()->operatingSystemVersion();
  return std::to_string(version.majorVersion) + "." + std::to_string(version.minorVersion);
}

}  // namespace

Gpu::Gpu() : process_(getpid()) {
  const Pool pool;
  device_ = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  if (!device_) {
    throw DeviceError("metal: this machine shows no GPU (MTLCreateSystemDefaultDevice found none)");
  }
  name_ = text_of(device_->name());
  os_ = os_version();
  // Family Apple 7 is the first of Apple silicon: simdgroup matrices and shared memory come with
  // it.
  if (!device_->supportsFamily(MTL::GPUFamilyApple7) || !device_->hasUnifiedMemory()) {
    throw DeviceError("metal: " + name_ +
                      " is not supported: expected Apple silicon (M1 or later)");
  }
  has_bfloat_ = device_->supportsFamily(MTL::GPUFamilyApple9);
  has_tensor_units_ = device_->supportsFamily(MTL::GPUFamilyApple10);
  has_metal_4_ = device_->supportsFamily(MTL::GPUFamilyMetal4);
  max_buffer_bytes_ = device_->maxBufferLength();
  page_bytes_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  queue_ = NS::TransferPtr(device_->newCommandQueue());
  if (!queue_) throw DeviceError("metal: " + name_ + " gave no command queue");
  residency_ = std::make_unique<Residency>(*device_.get(), *queue_.get());
}

void Gpu::refuse_forked_process() const {
  if (getpid() == process_) return;
  throw DeviceError(
      "metal: this process was forked from the one that opened the device; "
      "load the engine in this process");
}

}  // namespace lily::metal
