// Keeps buffers where the GPU reaches them at once. macOS takes memory that the GPU has not used
// for about a second out of its reach, and putting gigabytes back takes as long as many tokens.
// Since macOS 15 there are residency sets against that, which also go cold unless they are asked
// for again and again; before, Metal sees to the buffers of each command buffer by itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "device/metal/metal_cpp.h"

namespace lily::metal {

class Residency {
 public:
  // Where the system has no residency sets, everything here does nothing.
  Residency(MTL::Device& device, MTL::CommandQueue& queue);
  ~Residency();
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  bool is_supported() const { return static_cast<bool>(set_); }

  // From any thread. What was added counts from the next submission on.
  void add(const MTL::Buffer& buffer);
  void remove(const MTL::Buffer& buffer);
  // Before command buffers are committed: takes what was added into the set, and keeps the set warm
  // from now on, for a while.
  void before_submission();

 private:
  using Clock = std::chrono::steady_clock;
  void keep_alive();

  MTL::CommandQueue& queue_;
  Ref<MTL::ResidencySet> set_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_new_ = false, is_ending_ = false;
  Clock::time_point warm_until_{};
  std::thread thread_;
};

}  // namespace lily::metal
