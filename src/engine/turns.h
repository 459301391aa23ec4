// Whose turn it is on the device. First come, first served: sessions that ask again after every
// token or chunk therefore alternate, where an ordinary mutex would let one of them run to its end.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace lily {

class Turns {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    const uint64_t ticket = next_++;
    seats_[ticket % kSeats].wait(lock, [&] { return ticket == serving_; });
  }
  void unlock() {
    uint64_t next;
    {
      std::lock_guard lock(mutex_);
      next = ++serving_;
    }
    // All: with more threads than seats, several may sit on one.
    seats_[next % kSeats].notify_all();
  }

 private:
  std::mutex mutex_;
  // One seat each for so many threads: waking those whose turn it is not costs more than a small
  // model's step.
  static constexpr uint64_t kSeats = 16;
  std::array<std::condition_variable, kSeats> seats_;
  uint64_t next_ = 0, serving_ = 0;
};

using Turn = std::lock_guard<Turns>;

}  // namespace lily
