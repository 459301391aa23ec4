// The CUDA device: steps as kernel launches on one stream, and, from a step's second run on, as one
// CUDA graph that is replayed. Knows no kernel by name.
//
// A kernel takes one argument by value, Arguments, which metal/clang unpacks: the addresses of the
// bindings in order (0 for an empty one) and the bytes of the parameter struct.
//
// Kernels fail long after their launch, and the driver does not say which it was: the message of
// wait() names those that may have. With CUDA_LAUNCH_BLOCKING=1 in the environment each launch is
// waited for, and the message names the one.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "device/cuda/ptx.h"
#include "device/device.h"

namespace lily {

// Throws DeviceError where there is no driver, no GPU or no kernels.
std::shared_ptr<Device> make_cuda_device(
    const std::string& library = "libcuda.so.1",
    std::span<const cuda::PtxModule> modules = cuda::embedded_ptx());

}  // namespace lily
