// Runs the threadgroups of one dispatch, each thread on a stack of its own, and finds what a GPU
// would not forgive: simdgroup operations that not all lanes reach, barriers that not all threads
// reach, races in threadgroup memory, and accesses outside what was bound. The order in which
// threads run is drawn from a seed. One runner for each thread of the host. Knows no device and no
// step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/fibers/context.h"
#include "device/fibers/kernel.h"
#include "device/fibers/threadgroup_memory.h"

namespace lily::fibers {

// What a kernel was bound to, and what it may do with that.
struct Bound {
  uintptr_t begin, end;
  bool writable;
};

// The span of one binding that a dispatch read, or wrote.
struct Touched {
  uintptr_t begin, end;
  bool written;
};

// A dispatch, made ready: the same for all of its threadgroups.
struct Job {
  const Kernel* kernel = nullptr;
  std::string label;  // the kernel's name, for messages
  std::vector<Bound> bound;
  std::vector<uint64_t> buffers;
  std::vector<uint64_t> params;  // the bytes, aligned
  uint64_t seed = 0;
};

// Where a thread waits for others, and what it brings.
struct Meeting {
  const char* name;
  const void* site;  // of the call, so that equal calls at two places are told apart
  void (*combine)(std::byte* lanes);
  std::byte* value;
  uint32_t bytes;
};

class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Before run(): this thread of the host is the one that calls it from now on.
  void enter() { adopt_thread(host_); }
  // Runs one threadgroup to its end. Throws DeviceError naming kernel, group and thread.
  void run(const Job& job, const uint32_t (&group)[3]);

  // What kernels did to their bindings since forget_touched(): a span for each that was read, and
  // for each that was written. Only kernels that were compiled with checks tell.
  void forget_touched();
  void report_touched(std::vector<Touched>& to) const;

  // --- called by kernels, on a fiber; those that find an error do not return
  void meet_simdgroup(const Meeting& meeting);
  void threadgroup_barrier(uint32_t flags, const void* site);
  void simdgroup_barrier(uint32_t flags, const void* site);
  uint32_t lane() const { return current_->launch.lane; }
  std::byte* array(const char* name, const void* declaration, uint32_t bytes, const void* site);
  // Called at every access of a checked kernel; the usual ones end here.
  void touch(uintptr_t address, uint32_t bytes, Touch kind, const void* site) {
    if (stacks_.contains(address)) return;
    const Hot& hot = hot_[is_write(kind)];
    if (address >= hot.begin && address + bytes <= hot.end) return hot.span->widen(address, bytes);
    touch_elsewhere(address, bytes, kind, site);
  }
  [[noreturn]] void fail(std::string what, const void* site, const void* other_site = nullptr);

  // --- called by the signal handler
  // --------------------------------------------------------------- Notes why the current fiber is
  // broken; the stack pointer with which the host goes on, or null where no fiber is running.
  void* leave_after_fault(int signal, uintptr_t address, const void* site);

 private:
  // What keeps a thread that is not ready.
  enum class State : uint8_t { at_simdgroup, at_barrier, done };
  struct Fiber {
    Context context;
    Launch launch;
    Meeting meeting;
    State state;
    uint8_t turn;  // place in the order of its simdgroup
  };
  struct Simdgroup {
    uint8_t order[kLanes];  // lanes, by turn
    uint32_t ready;         // a bit for each turn
    uint32_t num_meeting;
    const Fiber* first;  // that came to this meeting
    alignas(kSlotBytes) std::byte lanes[kLanes * kSlotBytes];
  };
  // A failure, noted on a fiber; words that need more than a kernel's stack are found later.
  struct Failure {
    std::string what;
    const void* site = nullptr;        // where the fiber is
    const void* other_site = nullptr;  // of which `what` speaks last
    const Fiber* fiber = nullptr;
    bool is_stuck = false;  // nobody of the simdgroup, or of the whole group, can go on
  };
  struct Span {
    uintptr_t begin = UINTPTR_MAX, end = 0;
    void widen(uintptr_t address, uint32_t bytes) {
      if (address < begin) begin = address;
      if (address + bytes > end) end = address + bytes;
    }
  };
  // The binding that was used last, and the span that grows with each use.
  struct Hot {
    uintptr_t begin = 0, end = 0;
    Span* span = nullptr;
  };
  struct Fault {
    int signal = 0;
    uintptr_t address = 0;
  };

  static constexpr uint32_t kAll = ~0u;
  static void fiber_entry();
  void prepare(const Job& job, const uint32_t (&group)[3]);
  [[noreturn]] void throw_failure();
  Fiber* next_fiber(const Fiber& from);
  Fiber& ready_fiber_of(uint32_t simdgroup, uint32_t turn);
  Fiber* other_simdgroup();
  void stop_here(Fiber& self);
  void switch_from(Fiber& self, Fiber& next);
  void pause(Fiber& self, State state);
  bool is_ready(const Fiber& fiber) const;
  void check_meeting(const Fiber& self, const Fiber& first);
  std::string stuck_simdgroup(uint32_t simdgroup) const;
  std::string stuck_group() const;
  void touch_elsewhere(uintptr_t address, uint32_t bytes, Touch kind, const void* site);
  std::string out_of_bounds(uintptr_t address, uint32_t bytes, Touch kind) const;
  std::string place_of(const Fiber& fiber) const;
  uint32_t draw(uint32_t limit);

  const Job* job_ = nullptr;
  Fiber* current_ = nullptr;
  bool on_fiber_ = false;
  uint32_t group_[3] = {};
  uint32_t num_threads_ = 0, num_done_ = 0, num_at_barrier_ = 0;
  uint32_t ready_simdgroups_ = 0;  // a bit each
  uint64_t random_ = 1;
  Hot hot_[2];                     // of reads, of writes
  Span touched_[2][kMaxBindings];  // the same, by binding
  Context host_;
  Stacks stacks_;
  ThreadgroupMemory memory_;
  std::vector<Fiber> fibers_;
  std::vector<Simdgroup> simdgroups_;
  Failure failure_;
  Fault fault_;
};

// The runner whose fiber is running on this thread of the host; null outside of kernels. The model
// spares a call at every access to memory.
extern __attribute__((tls_model("initial-exec"))) constinit thread_local Runner* running_here;

}  // namespace lily::fibers
