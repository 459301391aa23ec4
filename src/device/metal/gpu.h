// One GPU as one process sees it: the device, its one queue, and what it can do, found by asking
// for features and never by name. Knows no kernel and no step.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "device/metal/metal_cpp.h"
#include "device/metal/residency.h"

namespace lily::metal {

class Gpu {
 public:
  // Throws DeviceError where there is none, or it is older than Apple silicon.
  Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  MTL::Device& device() const { return *device_.get(); }
  MTL::CommandQueue& queue() const { return *queue_.get(); }
  Residency& residency() const { return *residency_; }

  // "Apple M3 Max, macOS 15.1"; for people.
  std::string description() const { return name_ + ", macOS " + os_; }
  const std::string& name() const { return name_; }
  const std::string& os() const { return os_; }

  // The GPU computes with bfloat itself (since M3); before, every operation is emulated.
  bool has_bfloat() const { return has_bfloat_; }
  // The GPU has matrix units for tensor operations (since M5), and the system Metal 4, in which
  // kernels reach them.
  bool has_tensor_units() const { return has_tensor_units_; }
  bool has_metal_4() const { return has_metal_4_; }
  size_t max_buffer_bytes() const { return max_buffer_bytes_; }
  size_t page_bytes() const { return page_bytes_; }
  uint64_t working_set_bytes() const { return device_->recommendedMaxWorkingSetSize(); }
  uint64_t allocated_bytes() const { return device_->currentAllocatedSize(); }

  // Metal does not survive a fork. Throws DeviceError there.
  void refuse_forked_process() const;

 private:
  Ref<MTL::Device> device_;
  Ref<MTL::CommandQueue> queue_;
  std::unique_ptr<Residency> residency_;
  std::string name_, os_;
  bool has_bfloat_ = false, has_tensor_units_ = false, has_metal_4_ = false;
  size_t max_buffer_bytes_ = 0, page_bytes_ = 0;
  pid_t process_;
};

}  // namespace lily::metal
