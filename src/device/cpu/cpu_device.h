// The CPU device: runs each dispatch by calling the kernel of that name, split over a thread pool.
// Knows no kernel by itself; the tables come from src/cpu.
#pragma once

#include <memory>

#include "device/device.h"

namespace lily {

// Throws InvalidInput when options.isa names an instruction set that cannot run here.
std::shared_ptr<Device> make_cpu_device(const DeviceOptions& options);

}  // namespace lily
