// How many dispatches a command buffer may hold. The system ends the work of a GPU that answers
// nobody for seconds, and shows no frame meanwhile, so command buffers stay short; but each costs
// tens of microseconds. Times are learned: what a threadgroup of each kernel takes, from how long
// the command buffers took that held it. Knows no Metal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lily::metal {

// A part of the work of a command buffer.
struct Work {
  uint32_t kernel;  // small numbers, one for each kernel
  uint64_t groups;
};

class Pacer {
 public:
  explicit Pacer(double most_us) : most_us_(most_us) {}

  // How many of these, from the first on, a command buffer should hold: one at least.
  size_t take(std::span<const Work> work) const;
  // A command buffer held this work and took so long.
  void observe(std::span<const Work> work, double us);

 private:
  struct Estimate {
    double us_per_group;
    uint64_t changed_by;  // the observation that did last
  };
  double predict_us(const Work& work) const;

  double most_us_;
  std::vector<Estimate> estimates_;  // by kernel
  uint64_t num_observed_ = 0;
};

}  // namespace lily::metal
