// Threads that run one job together, again and again. Owns waking, the barrier between pieces of a
// job, and sleeping when idle; knows nothing of kernels.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lily {

class ThreadPool {
 public:
  // `num_threads` counts the caller's thread, which works too.
  explicit ThreadPool(uint32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t num_threads() const { return num_threads_; }

  // Calls job(thread_index) on every thread and returns when all are done. One caller at a time.
  // The job must not throw: an exception on a worker has nowhere to go.
  void run(const std::function<void(uint32_t)>& job);

  // Inside a job: waits until every thread has come here. Spins, because the pieces of a decode
  // step are microseconds long; yields once a wait grows long, so that busy machines still
  // progress.
  void barrier();

 private:
  void work(uint32_t index);

  const uint32_t num_threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  const std::function<void(uint32_t)>* job_ = nullptr;
  std::atomic<uint64_t> generation_{0};  // jobs started
  bool stopping_ = false;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::vector<std::thread> threads_;
};

}  // namespace lily
