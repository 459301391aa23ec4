// One GPU as one process sees it: the driver, the device's primary context, and the one stream on
// which everything is ordered; and memory there. Knows no kernel.
//
// The primary context is shared with other libraries of the process (PyTorch, say), so it is
// retained, never reset, and made current for a thread at each entry.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "device/cuda/driver.h"
#include "device/device.h"

namespace lily::cuda {

class Context {
 public:
  // Opens the first device that the driver shows (CUDA_VISIBLE_DEVICES chooses).
  explicit Context(const std::string& library);
  ~Context();

  const Driver& driver() const { return driver_; }
  CUstream stream() const { return stream_.get(); }
  const std::string& description() const { return description_; }

  // Makes the context current for this thread. Throws DeviceError in a forked process: the driver
  // does not survive a fork.
  void enter() const;
  bool is_in_forked_process() const;
  // The same for destructors, which must not throw: false where nothing can be done.
  bool try_enter() const noexcept;

 private:
  Driver driver_;
  pid_t process_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  Handle<CUstream> stream_;
  std::string description_;

  void describe();
};

// Memory that kernels can reach.
class DeviceMemory final : public BufferStorage {
 public:
  // On the device, where the host cannot reach it. Throws OutOfMemory. `keeps_alive` goes with the
  // memory.
  static std::shared_ptr<DeviceMemory> allocate(std::shared_ptr<const Context> context,
                                                size_t bytes,
                                                std::shared_ptr<const void> keeps_alive = nullptr);
  // The host's, page-locked: kernels reach it over the bus, at the same address.
  static std::shared_ptr<DeviceMemory> allocate_shared(std::shared_ptr<const Context> context,
                                                       size_t bytes);
  ~DeviceMemory() override;

  CUdeviceptr address() const { return address_; }
  const Context& context() const { return *context_; }

 private:
  std::shared_ptr<const Context> context_;
  std::shared_ptr<const void> keeps_alive_;
  CUdeviceptr address_;

  DeviceMemory(std::shared_ptr<const Context> context, size_t bytes, CUdeviceptr address,
               std::byte* host, std::shared_ptr<const void> keeps_alive);
};

}  // namespace lily::cuda
