// The Metal device: steps as command buffers of Apple's GPU, through metal-cpp. Knows no kernel by
// name, and no Objective-C: the very files of this folder also run on Linux, against the simulated
// Metal of tests/metal/simulated.
//
// Who owns which part: gpu.h the device, its queue and what it can do; memory.h buffers;
// residency.h that they stay in the GPU's reach; kernels.h code; commands.h the encoding of a step;
// flights.h what is under way and how it ended; pacer.h how long command buffers may get; health.h
// what the machine says of itself; tensor_units.h whether they are used.
//
// How order is kept. Buffers are untracked, so Metal orders nothing: inside a pass, barriers stand
// where the step says; between passes, also of different command buffers, one fence does: each pass
// waits for it before its first dispatch and updates it after its last. Command buffers retain
// nothing: a step is held until its last command buffer has completed.
//
// A step that is replayed (a token) is one command buffer with one pass. As soon as it is committed
// the one that will follow it is encoded, while the GPU works, so that submitting that is a commit.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "device/device.h"
#include "device/metal/sources.h"

namespace lily {

struct MetalOptions {
  // What is compiled where there is no metallib.
  std::span<const metal::KernelSource> sources = metal::embedded_sources();
  std::filesystem::path metallib = {};  // empty: lily.metallib beside this library, if it is there
  std::filesystem::path cache_folder = {};  // empty: the user's
  double most_us = 150e3;                   // of GPU time, for a command buffer
  KernelCheck check = {};                   // of tensor ops; empty: they are not used
};

// Throws DeviceError where there is no GPU that serves.
std::shared_ptr<Device> make_metal_device(const MetalOptions& options = {});

}  // namespace lily
