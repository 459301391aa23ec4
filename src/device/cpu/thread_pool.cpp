// See thread_pool.h.
#include "device/cpu/thread_pool.h"

#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lily {
namespace {

// Tells the processor that this is a wait loop, so that a sibling hardware thread gets the core.
inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// About 50 us of spinning: longer than any pause between two steps of a generation, short enough
// that an idle pool costs nothing.
constexpr int kSpins = 2000;

// Spins, then yields, until `ready()`.
template <class Ready>
void wait_until(Ready ready) {
  for (int spin = 0; !ready(); ++spin) {
    if (spin < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace

ThreadPool::ThreadPool(uint32_t num_threads)
    : num_threads_(num_threads < 1 ? 1 : num_threads),
      process_(getpid()),
      shared_(std::make_unique<Shared>()) {
  shared_->threads.reserve(num_threads_ - 1);
  for (uint32_t index = 1; index < num_threads_; ++index) {
    shared_->threads.emplace_back([this, index] { work(index); });
  }
}

bool ThreadPool::is_in_forked_process() const { return getpid() != process_; }

ThreadPool::~ThreadPool() {
  if (is_in_forked_process()) {
    // Joining threads that are not here, or destroying what they wait on, never ends: leave it all.
    static_cast<void>(shared_.release());
    return;
  }
  {
    std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->wake.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

void ThreadPool::run(const std::function<void(uint32_t)>& job) {
  if (num_threads_ == 1) return job(0);
  {
    std::lock_guard lock(shared_->mutex);
    shared_->job = &job;
    shared_->generation.fetch_add(1, std::memory_order_release);
  }
  shared_->wake.notify_all();
  job(0);
  barrier();  // every worker has left the job before `job` goes out of scope
}

void ThreadPool::barrier() {
  if (num_threads_ == 1) return;
  Shared& s = *shared_;
  const uint32_t phase = s.phase.load(std::memory_order_relaxed);
  if (s.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    s.arrived.store(0, std::memory_order_relaxed);
    s.phase.store(phase + 1, std::memory_order_release);
    return;
  }
  wait_until([&] { return s.phase.load(std::memory_order_acquire) != phase; });
}

void ThreadPool::work(uint32_t index) {
  Shared& s = *shared_;
  uint64_t seen = 0;
  for (;;) {
    // A generation follows the last within microseconds, or not for long: spin, then sleep.
    for (int spin = 0; spin < kSpins && s.generation.load(std::memory_order_acquire) == seen;
         ++spin) {
      relax();
    }
    const std::function<void(uint32_t)>* job = nullptr;
    {
      std::unique_lock lock(s.mutex);
      s.wake.wait(lock, [&] { return s.stopping || s.generation.load() != seen; });
      if (s.stopping) return;
      seen = s.generation.load();
      job = s.job;
    }
    (*job)(index);
    barrier();
  }
}

}  // namespace lily
