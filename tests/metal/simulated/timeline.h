// Inside the simulated Metal only: the GPU's own time. Command buffers run on a thread, in the
// order of their commits; their completion is told on other threads, late and in any order.
//
// What may overlap on a GPU is checked by what kernels touched: dispatches of a concurrent pass
// with no barrier between, and passes with no fence between, for nothing here is hazard-tracked.
// Dispatches between two barriers run in a drawn order.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "objects.h"

namespace lily::simulated {

class Timeline : public std::enable_shared_from_this<Timeline> {
 public:
  Timeline();
  void begin();
  // After everything that was committed. May be called on the timeline's own threads, for a command
  // buffer may be the last that holds its queue.
  void end();

  // Waits while as many command buffers exist as a queue holds.
  void take_slot();
  void give_slot_back();
  void commit(Held<CommandBuffer> buffer);
  // Its place in the order of commits, and what the host knows to have ended by now.
  void number(Pass& pass);

 private:
  struct Use {
    Touched touched;
    std::string kernel;
  };
  // Of the passes that ran last: what they touched, and which ones surely came before them.
  struct RunPass {
    uint64_t id = 0, all_up_to = 0;
    std::set<uint64_t> also;
    std::vector<Use> uses;
    bool comes_after(uint64_t other) const { return other <= all_up_to || also.contains(other); }
  };

  void run_gpu();
  void note_told(const CommandBuffer& buffer);
  void tell_completions();
  void run(CommandBuffer& buffer, uint64_t index);
  void run_pass(const Pass& pass, uint64_t buffer);
  std::vector<Use> run_dispatch(const Command& command, uint64_t buffer);
  void order_after_fences(RunPass& run, const Pass& pass);
  void check_conflict(const std::vector<Use>& mine, const std::vector<Use>& theirs,
                      const char* what) const;
  uint32_t draw(uint32_t limit);
  void delay();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Held<CommandBuffer>> committed_, finished_;
  bool is_ending_ = false, gpu_has_ended_ = false;
  uint32_t slots_taken_ = 0;
  std::mt19937_64 random_;
  std::mutex random_mutex_;
  uint64_t last_pass_ = 0, told_up_to_ = 0;
  std::set<uint64_t> told_;  // and some after that

  // The GPU thread's alone.
  std::deque<RunPass> recent_;
  uint64_t num_run_ = 0;
  double now_s_ = 1;

  std::vector<std::thread> threads_;  // last, for they use the rest
};

}  // namespace lily::simulated
