// Whose turn it is on the device. First come, first served: sessions that ask again after every
// token or chunk therefore alternate, where an ordinary mutex would let one of them run to its end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace lily {

class Turns {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    const uint64_t ticket = next_++;
    changed_.wait(lock, [&] { return ticket == serving_; });
  }
  void unlock() {
    {
      std::lock_guard lock(mutex_);
      ++serving_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0, serving_ = 0;
};

using Turn = std::lock_guard<Turns>;

}  // namespace lily
