// A step as an encoder takes it: pipelines and places in buffers, resolved once; and the encoding.
// Knows no queue's state and no device above it.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "device/metal/gpu.h"
#include "device/metal/kernels.h"
#include "device/metal/memory.h"
#include "device/metal/pacer.h"

namespace lily::metal {

struct Launch {
  const Kernel* kernel;
  std::vector<Place> places;
  std::vector<std::byte> params;
  MTL::Size groups, threads;
  bool barrier_before;
};

// What orders passes of all command buffers, for nothing else does.
class Order {
 public:
  explicit Order(const Gpu& gpu) : fence_(NS::TransferPtr(gpu.device().newFence())) {}
  const MTL::Fence& fence() const { return *fence_.get(); }

 private:
  Ref<MTL::Fence> fence_;
};

class MetalStep final : public PreparedStep {
 public:
  // Throws InvalidInput for kernels that are not there, and for dispatches that do not fit.
  MetalStep(std::shared_ptr<const Gpu> gpu, Kernels& kernels, const Step& step);

  const Gpu& gpu() const { return *gpu_; }
  std::span<const Launch> launches() const { return launches_; }
  std::span<const Work> work() const { return work_; }

  // Launches [begin, begin + count) as one pass of a new command buffer, to be committed.
  Ref<MTL::CommandBuffer> encode(size_t begin, size_t count, const Order& order) const;
  // What was submitted after it the last time; null where that is gone.
  std::shared_ptr<const MetalStep> follower() const { return follower_.lock(); }
  void set_follower(const std::shared_ptr<const MetalStep>& step) { follower_ = step; }
  // "kernels a, b and 3 more": those of these launches, each once.
  std::string name_kernels(size_t begin, size_t count) const;

 private:
  std::shared_ptr<const Gpu> gpu_;
  std::vector<Buffer> buffers_;  // command buffers do not hold them
  std::vector<Launch> launches_;
  std::vector<Work> work_;
  std::weak_ptr<const MetalStep> follower_;
};

}  // namespace lily::metal
