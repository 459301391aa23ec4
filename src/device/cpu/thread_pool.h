// Threads that run one job together, again and again. Owns waking, the barrier between pieces of a
// job, and sleeping when idle; knows nothing of kernels.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
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
  // A fork takes none of the threads along: there, run() would wait for them for ever.
  bool is_in_forked_process() const;

  // Calls job(thread_index) on every thread and returns when all are done. One caller at a time.
  // The job must not throw: an exception on a worker has nowhere to go.
  void run(const std::function<void(uint32_t)>& job);

  // Inside a job: waits until every thread has come here. Spins, because the pieces of a decode
  // step are microseconds long; yields once a wait grows long, so that busy machines still
  // progress.
  void barrier();

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable wake;
    const std::function<void(uint32_t)>* job = nullptr;
    std::atomic<uint64_t> generation{0};  // jobs started
    bool stopping = false;
    alignas(64) std::atomic<uint32_t> arrived{0};
    alignas(64) std::atomic<uint32_t> phase{0};
    std::vector<std::thread> threads;
  };
  void work(uint32_t index);

  const uint32_t num_threads_;
  const int process_;  // that made the threads
  std::unique_ptr<Shared> shared_;
};

}  // namespace lily
