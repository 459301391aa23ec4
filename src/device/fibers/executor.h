// Runs one dispatch on fibers: its threadgroups, in an order drawn from a seed, over the threads of
// this machine; finds its kernel by name and refuses what does not fit it. Serves the device
// "fibers" and the simulated Metal device of the tests. Knows no step and allocates nothing.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device/cpu/thread_pool.h"
#include "device/device.h"
#include "device/fibers/runner.h"

namespace lily::fibers {

class Executor {
 public:
  // threads 0: all of this machine.
  Executor(uint32_t threads, uint64_t seed);

  uint32_t num_threads() const { return pool_.num_threads(); }
  size_t num_kernels() const { return kernels_.size(); }
  bool is_in_forked_process() const { return pool_.is_in_forked_process(); }

  // Null where no kernel has this name.
  const Kernel* find(std::string_view name) const;
  // The kernel of a dispatch, which must fit it in every respect that a GPU would not check: throws
  // InvalidInput.
  const Kernel& check(const Dispatch& dispatch) const;
  // Runs the dispatch, whose bindings the host must reach. Returns what it touched of them, in
  // kernels that were compiled with checks. Throws DeviceError. One caller at a time.
  std::vector<Touched> run(const Dispatch& dispatch);

 private:
  Job prepare(const Dispatch& dispatch);
  void run_part(uint32_t thread, const Job& job, const Dispatch& dispatch);

  ThreadPool pool_;
  std::vector<std::unique_ptr<Runner>> runners_;  // one for each thread, made there
  std::unordered_map<std::string_view, const Kernel*> kernels_;
  uint64_t seed_;

  // Of the dispatch that is running.
  std::vector<uint64_t> order_;  // its threadgroups
  std::atomic<size_t> next_{0};  // of them
  std::mutex result_mutex_;
  std::exception_ptr failure_;  // the first
  std::vector<Touched> touched_;
};

}  // namespace lily::fibers
