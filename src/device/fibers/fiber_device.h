// The device "fibers": runs the Metal kernels themselves, compiled for this machine, thread by
// thread, and checks what they do (runner.h). For tests; a step takes thousands of times as long as
// on a GPU. Finds kernels by name among those it was linked with; knows none of them.
#pragma once

#include <memory>

#include "device/device.h"

namespace lily {

// options.isa may give the seed of all orders, as a number.
std::shared_ptr<Device> make_fiber_device(const DeviceOptions& options);

}  // namespace lily
