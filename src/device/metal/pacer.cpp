// See pacer.h.
#include "device/metal/pacer.h"

#include <algorithm>

namespace lily::metal {
namespace {

// Before anything is known: what the slowest kernel takes on the smallest GPU, roughly. Too much
// costs a few command buffers more; too little could freeze the screen once.
constexpr double kFirstGuessUs = 8;
// One measurement changes an estimate by no more than this factor: it may have had a pause in it.
constexpr double kMostChange = 4;

}  // namespace

double Pacer::predict_us(const Work& work) const {
  const bool is_known = work.kernel < estimates_.size();
  const double each = is_known ? estimates_[work.kernel].us_per_group : kFirstGuessUs;
  return each * static_cast<double>(work.groups);
}

size_t Pacer::take(std::span<const Work> work) const {
  double us = 0;
  for (size_t count = 0; count < work.size(); ++count) {
    us += predict_us(work[count]);
    if (us > most_us_) return std::max<size_t>(count, 1);
  }
  return work.size();
}

// Shares the error among the kernels in proportion to what was expected of them. Command buffers
// hold different mixes, so the estimates settle.
void Pacer::observe(std::span<const Work> work, double us) {
  double predicted = 0;
  for (const Work& part : work) predicted += predict_us(part);
  if (!(us > 0) || predicted == 0) return;
  const double change = std::clamp(us / predicted, 1 / kMostChange, kMostChange);
  ++num_observed_;
  for (const Work& part : work) {
    if (part.kernel >= estimates_.size()) estimates_.resize(part.kernel + 1, {kFirstGuessUs, 0});
    Estimate& estimate = estimates_[part.kernel];
    if (estimate.changed_by == num_observed_) continue;
    estimate = {estimate.us_per_group * change, num_observed_};
  }
}

}  // namespace lily::metal
