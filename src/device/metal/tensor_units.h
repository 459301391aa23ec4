// Whether a device's matrix units for tensor operations are used, and if not, why: they are where
// the GPU and the system have them and a check of their kernels passed in this process, on this
// machine. Knows no kernel.
#pragma once

#include <future>
#include <string>

#include "device/device.h"
#include "device/metal/gpu.h"

namespace lily::metal {

class TensorUnits {
 public:
  // `device` is what the check runs on, and holds this. Checks nothing yet: whoever asks first
  // waits.
  TensorUnits(const Gpu& gpu, Device& device, KernelCheck check);

  // From any thread, while no step is under way.
  bool are_used() const { return reason_.get().empty(); }
  // "yes, used (self-check passed)"; for people.
  std::string describe() const;

 private:
  bool are_there_;
  std::shared_future<std::string> reason_;  // against their use; empty: none
};

}  // namespace lily::metal
