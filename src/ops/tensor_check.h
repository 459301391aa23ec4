// The self-check of the kernels that Tiles::apple_tensor chooses: does this device get from them,
// on this very machine, what it gets from the portable ones? Knows no particular device.
#pragma once

#include <string>

#include "device/device.h"

namespace lily::ops {

// Runs each of them once, and the portable kernel of the same operation, at small shapes: ragged in
// every direction, of more than one tile, with experts that have no rows. Returns what differs
// first, or nothing. Throws what the device throws. No step may be under way.
std::string check_tensor_kernels(Device& device);

}  // namespace lily::ops
