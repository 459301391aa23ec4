// A simulated Metal device for Linux: what tests set and read, and what runs its kernels. The
// device itself is reached only as on a Mac, through Metal's own functions and messages.
//
// It keeps Metal's rules and ends a test where one is broken: calls that break one throw Violation;
// what shows only when the GPU runs (a hazard, freed memory) fails the command buffer, as a fault
// of the GPU would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lily::simulated {

// A rule of Metal that the caller broke.
class Violation : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

struct Settings {
  bool is_there = true;  // false: a machine without a GPU
  uint64_t seed = 1;     // of the order of independent dispatches, and of all delays
  int family = 9;        // the newest MTLGPUFamilyApple of the GPU
  int os_major = 26;
  uint64_t max_buffer_bytes = uint64_t{8} << 30;
  uint64_t working_set_bytes = uint64_t{16} << 30;
  uint32_t most_delay_us = 0;  // before a command buffer runs, and before it is reported
  double us_per_group = 1;     // by the GPU's own clock
  int fail_at = -1;            // so many command buffers succeed, then one fails; -1: none
  int fail_code = 1;           // with this MTLCommandBufferError
  bool fail_buffers_no_copy = false, fail_archives = false;
  int thermal_state = 0;    // NSProcessInfoThermalState
  int memory_pressure = 1;  // 1, 2 or 4, as kern.memorystatus_vm_pressure_level
};
// Set them while no device is open. A process begins as a machine without a GPU. Whenever a device
// is opened, LILY_SIMULATED_METAL ("seed=3,family=7"), where it is set, takes their place; once it
// is set no longer, the GPU is gone.
Settings& settings();

// A dispatch as the GPU saw it.
struct Ran {
  std::string kernel;
  uint32_t groups[3], threads[3];
  uint64_t command_buffer;  // counted from 0, in the order of commits
};

// What happened since reset().
struct Statistics {
  std::map<std::string, int> alive;  // objects by class
  uint64_t committed = 0, barriers = 0;
  uint64_t passes_that_waited = 0;  // for a fence
  uint64_t libraries_compiled = 0, pipelines_compiled = 0, pipelines_from_archive = 0;
  uint64_t resident_buffers = 0;  // in residency sets, after their commit
  uint64_t residency_requests = 0;
  std::vector<Ran> ran;
  std::vector<std::string> violations;
};
Statistics statistics();
// Forgets what happened, and sets the settings back to a sound machine.
void reset();

struct Touched {
  uintptr_t begin, end;
  bool written;
};
struct Bound {
  std::byte* memory;  // null: an empty binding
  size_t bytes;       // to the end of the buffer
};
struct Launch {
  std::string kernel;
  uint32_t groups[3], threads[3];
  std::vector<Bound> buffers;
  std::vector<std::byte> params;
};
struct Kernel {
  uint32_t threads, bindings, params_bytes;
  std::string source;  // file name
};

// What runs kernels in the GPU's place.
class Executor {
 public:
  virtual ~Executor() = default;
  // Null where there is no such kernel.
  virtual std::unique_ptr<Kernel> find(const std::string& name) = 0;
  virtual std::vector<std::string> names() = 0;
  // Throws where the kernel fails. Called by one thread.
  virtual std::vector<Touched> run(const Launch& launch) = 0;
};
// Must be set before the first device is opened, and hold as long as any.
void set_executor(std::shared_ptr<Executor> executor);

}  // namespace lily::simulated
