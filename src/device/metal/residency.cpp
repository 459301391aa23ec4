// See residency.h.
#include "device/metal/residency.h"

namespace lily::metal {
namespace {

// Twice as often as the system would let go.
constexpr std::chrono::milliseconds kHeartbeat{500};
// After the last submission: a person reads an answer and asks again. Longer would hold memory that
// other programs may want.
constexpr std::chrono::minutes kKeptWarm{3};

}  // namespace

Residency::Residency(MTL::Device& device, MTL::CommandQueue& queue) : queue_(queue) {
  // Null where there is no such class.
  const auto descriptor = NS::TransferPtr(MTL::ResidencySetDescriptor::alloc());
  if (!descriptor) return;
  descriptor->init();
  NS::Error* error = nullptr;
  set_ = NS::TransferPtr(device.newResidencySet(descriptor.get(), &error));
  if (!set_) return;
  queue_.addResidencySet(set_.get());
  thread_ = std::thread([this] { keep_alive(); });
}

Residency::~Residency() {
  if (!set_) return;
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  queue_.removeResidencySet(set_.get());
  set_->endResidency();
}

void Residency::add(const MTL::Buffer& buffer) {
  if (!set_) return;
  std::lock_guard lock(mutex_);
  set_->addAllocation(&buffer);
  has_new_ = true;
}

// At once: the set holds on to what it has, and with it to the memory.
void Residency::remove(const MTL::Buffer& buffer) {
  if (!set_) return;
  std::lock_guard lock(mutex_);
  set_->removeAllocation(&buffer);
  set_->commit();
}

void Residency::before_submission() {
  if (!set_) return;
  std::lock_guard lock(mutex_);
  if (has_new_) {
    set_->commit();
    set_->requestResidency();
    has_new_ = false;
  }
  const Clock::time_point now = Clock::now();
  const bool was_cold = warm_until_ < now;
  warm_until_ = now + kKeptWarm;
  if (was_cold) changed_.notify_all();
}

void Residency::keep_alive() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    if (Clock::now() >= warm_until_) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, kHeartbeat);
    if (is_ending_) break;
    const Pool pool;
    set_->requestResidency();
  }
}

}  // namespace lily::metal
