// Command buffers under way, and how they ended. Metal tells the end of each on a thread of its
// own, at any time after; what follows from it happens on the threads of callers. Knows no
// encoding.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/metal/commands.h"
#include "device/metal/pacer.h"

namespace lily::metal {

// GPU time from the first start to the last end of what was waited for.
struct Interval {
  double begin_s = 0, end_s = 0;
};

class Flights {
 public:
  explicit Flights(Pacer& pacer);
  ~Flights();  // waits for all; finish() first where failures matter
  Flights(const Flights&) = delete;
  Flights& operator=(const Flights&) = delete;

  // Commits; `step` is held until the command buffer, which has its launches [begin, begin +
  // count), has completed.
  void commit(MTL::CommandBuffer& buffer, std::shared_ptr<const MetalStep> step, size_t begin,
              size_t count);
  // Lets go of what has completed, without waiting.
  void collect();
  // The ticket of the last that was committed.
  Ticket last_ticket() const { return next_ticket_ - 1; }
  // Waits for all up to a ticket. Whether none of them has failed.
  bool wait(Ticket ticket);
  // Waits for all. Returns how the first that failed failed, and forgets it.
  std::optional<std::string> finish();
  // Of all that were under way at the last finish().
  Interval last_interval() const { return interval_; }

 private:
  struct Flight {
    Ticket ticket;
    std::shared_ptr<const MetalStep> step;
    size_t begin, count;
  };
  struct Landing {
    Ticket ticket;
    double begin_s, end_s;
    std::optional<std::string> failure;
  };
  struct Tower;  // what Metal's threads reach
  void await_landings();
  void take(const std::vector<Landing>& landings);

  Pacer& pacer_;
  std::shared_ptr<Tower> tower_;
  std::vector<Flight> flights_;
  Ticket next_ticket_ = 1;
  std::optional<std::pair<Ticket, std::string>> failure_;  // the earliest
  Interval current_, interval_;
};

}  // namespace lily::metal
