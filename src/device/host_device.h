// What devices that compute in the host's own memory share: wrapping, copies, and how much memory
// there is. Knows no kernel.
#pragma once

#include <mutex>

#include "device/device.h"

namespace lily {

class HostDevice : public Device {
 public:
  uint64_t memory_total_bytes() const override;
  uint64_t memory_available_bytes() const override;
  Buffer wrap(std::shared_ptr<const void> owner, const void* mapped, size_t bytes) override;
  Buffer allocate_shared(size_t bytes) override { return allocate(bytes); }
  // Steps run before submit returns.
  void wait() override {}
  void wait(Ticket) override {}
  void read(const View& from, void* to, size_t bytes) override;
  void write(const View& to, const void* from, size_t bytes) override;
  void copy(const View& to, const View& from, size_t bytes) override;
  void clear(const View& view) override;

 protected:
  std::mutex mutex_;  // one step or copy at a time: the threads are shared
};

}  // namespace lily
