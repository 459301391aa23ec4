// Whose turn it is on the device. First come, first served: sessions that ask again after every
// token or chunk therefore alternate, where an ordinary mutex would let one of them run to its end.
//
// A turn is alone on the device. Decode steps, which share nothing that they write, may also stand
// beside each other, as many as the device has lanes: where as many sessions ask, each step takes
// one lane, which wastes less than a small step cut over all of them.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace lily {

class Turns {
 public:
  explicit Turns(uint32_t lanes) : lanes_(lanes) {}

  void lock() {
    std::unique_lock lock(mutex_);
    const uint64_t ticket = next_++;
    seat(ticket).wait(lock, [&] { return ticket == serving_ && running_ == 0; });
    admit(lock, true);
  }
  // The turn of a decode step: true where it stands beside others, false where it is alone.
  bool lock_step() {
    std::unique_lock lock(mutex_);
    const uint64_t ticket = next_++;
    seat(ticket).wait(lock, [&] {
      return ticket == serving_ && (running_ == 0 || (!alone_ && running_ < lanes_));
    });
    const uint64_t asking = next_ - serving_ + running_;
    const bool beside = running_ > 0 || (lanes_ > 1 && asking >= lanes_);
    admit(lock, !beside);
    return beside;
  }
  // Whether somebody waits for a turn.
  bool are_wanted() {
    std::lock_guard lock(mutex_);
    return next_ != serving_;
  }
  void unlock() {
    uint64_t next;
    {
      std::lock_guard lock(mutex_);
      --running_;
      next = serving_;
    }
    seat(next).notify_all();
  }

 private:
  // With more threads than seats, several may sit on one: they are all woken, and look.
  std::condition_variable& seat(uint64_t ticket) { return seats_[ticket % kSeats]; }

  void admit(std::unique_lock<std::mutex>& lock, bool alone) {
    ++serving_;
    ++running_;
    alone_ = alone;
    const uint64_t next = serving_;
    lock.unlock();
    if (!alone) seat(next).notify_all();  // there may be room for one more
  }

  const uint32_t lanes_;
  std::mutex mutex_;
  // One seat each for so many threads: waking those whose turn it is not costs more than a small
  // model's step.
  static constexpr uint64_t kSeats = 16;
  std::array<std::condition_variable, kSeats> seats_;
  uint64_t next_ = 0, serving_ = 0;  // serving_: the first ticket that is not admitted yet
  uint32_t running_ = 0;
  bool alone_ = false;  // of those that run
};

using Turn = std::lock_guard<Turns>;

// The turn of one decode step.
class StepTurn {
 public:
  explicit StepTurn(Turns& turns) : turns_(turns), beside_(turns.lock_step()) {}
  ~StepTurn() { turns_.unlock(); }
  StepTurn(const StepTurn&) = delete;
  StepTurn& operator=(const StepTurn&) = delete;
  bool beside() const { return beside_; }

 private:
  Turns& turns_;
  const bool beside_;
};

}  // namespace lily
