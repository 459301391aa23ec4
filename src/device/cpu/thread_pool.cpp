// See thread_pool.h.
#include "device/cpu/thread_pool.h"

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

ThreadPool::ThreadPool(uint32_t num_threads) : num_threads_(num_threads < 1 ? 1 : num_threads) {
  threads_.reserve(num_threads_ - 1);
  for (uint32_t index = 1; index < num_threads_; ++index) {
    threads_.emplace_back([this, index] { work(index); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(const std::function<void(uint32_t)>& job) {
  if (num_threads_ == 1) return job(0);
  {
    std::lock_guard lock(mutex_);
    job_ = &job;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  job(0);
  barrier();  // every worker has left the job before `job` goes out of scope
}

void ThreadPool::barrier() {
  if (num_threads_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  wait_until([&] { return phase_.load(std::memory_order_acquire) != phase; });
}

void ThreadPool::work(uint32_t index) {
  uint64_t seen = 0;
  for (;;) {
    // A generation follows the last within microseconds, or not for long: spin, then sleep.
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen;
         ++spin) {
      relax();
    }
    const std::function<void(uint32_t)>* job = nullptr;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || generation_.load() != seen; });
      if (stopping_) return;
      seen = generation_.load();
      job = job_;
    }
    (*job)(index);
    barrier();
  }
}

}  // namespace lily
