// See flights.h.
#include "device/metal/flights.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace lily::metal {
namespace {

// What a person can do about it, where that is known.
std::string advice(NS::Integer code) {
  switch (code) {
    case MTL::CommandBufferErrorTimeout:
      return "; the system ended it because it took too long: use smaller chunk_tokens";
    case MTL::CommandBufferErrorAccessRevoked:
      return "; the system refuses this process the GPU until it is started again";
    case MTL::CommandBufferErrorNotPermitted:
      return "; programs in the background may not use the GPU";
    case MTL::CommandBufferErrorOutOfMemory: return "; close other programs, or use less context";
    default: return "";
  }
}

}  // namespace

struct Flights::Tower {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Landing> landings;
};

Flights::Flights(Pacer& pacer) : pacer_(pacer), tower_(std::make_shared<Tower>()) {}

Flights::~Flights() { finish(); }

void Flights::commit(MTL::CommandBuffer& buffer, std::shared_ptr<const MetalStep> step,
                     size_t begin, size_t count) {
  const Ticket ticket = next_ticket_++;
  buffer.addCompletedHandler([tower = tower_, ticket](MTL::CommandBuffer* done) {
    const Pool pool;
    Landing landing{ticket, done->GPUStartTime(), done->GPUEndTime(), {}};
    if (done->status() != MTL::CommandBufferStatusCompleted) {
      const NS::Error* error = done->error();
      landing.failure = text_of(error) + (error ? advice(error->code()) : "");
    }
    std::lock_guard lock(tower->mutex);
    tower->landings.push_back(std::move(landing));
    tower->changed.notify_all();
  });
  buffer.commit();
  flights_.push_back({ticket, std::move(step), begin, count});
}

void Flights::collect() {
  std::vector<Landing> landings;
  {
    std::lock_guard lock(tower_->mutex);
    landings.swap(tower_->landings);
  }
  take(landings);
}

void Flights::await_landings() {
  std::vector<Landing> landings;
  {
    std::unique_lock lock(tower_->mutex);
    tower_->changed.wait(lock, [&] { return !tower_->landings.empty(); });
    landings.swap(tower_->landings);
  }
  take(landings);
}

// Metal may tell ends in another order than that in which they came.
bool Flights::wait(Ticket ticket) {
  const auto is_awaited = [&](const Flight& flight) { return flight.ticket <= ticket; };
  while (std::ranges::any_of(flights_, is_awaited)) await_landings();
  return !failure_ || failure_->first > ticket;
}

std::optional<std::string> Flights::finish() {
  while (!flights_.empty()) await_landings();
  interval_ = std::exchange(current_, {});
  std::optional<std::string> text;
  if (failure_) text = std::move(failure_->second);
  failure_.reset();
  return text;
}

void Flights::take(const std::vector<Landing>& landings) {
  for (const Landing& landing : landings) {
    const auto flight = std::ranges::find(flights_, landing.ticket, &Flight::ticket);
    if (!landing.failure) {
      const double us = (landing.end_s - landing.begin_s) * 1e6;
      pacer_.observe(flight->step->work().subspan(flight->begin, flight->count), us);
      const bool is_first = current_.end_s == 0;
      current_.begin_s = is_first ? landing.begin_s : std::min(current_.begin_s, landing.begin_s);
      current_.end_s = std::max(current_.end_s, landing.end_s);
    } else if (!failure_ || landing.ticket < failure_->first) {
      failure_.emplace(landing.ticket,
                       "a command buffer failed: " + *landing.failure + "; it held " +
                           flight->step->name_kernels(flight->begin, flight->count));
    }
    flights_.erase(flight);
  }
}

}  // namespace lily::metal
