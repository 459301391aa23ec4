// See cpu_device.h. Steps run on the caller's thread and the pool before submit returns, so wait()
// has nothing to do: "as if in order" holds trivially.
#include "device/cpu/cpu_device.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "core/error.h"
#include "cpu/kernels.h"
#include "device/cpu/thread_pool.h"
#include "device/host_device.h"

namespace lily {
namespace {

// Anonymous pages: zeroed, page-aligned, and not resident until they are touched, so that a KV
// cache planned for a long context costs memory only as it fills.
class OwnedMemory final : public BufferStorage {
 public:
  explicit OwnedMemory(size_t bytes) : BufferStorage(bytes, map(bytes)) {}
  ~OwnedMemory() override { munmap(host(), this->bytes()); }

 private:
  static std::byte* map(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw OutOfMemory("cpu: cannot allocate " + human_bytes(bytes) + ": " + std::strerror(errno));
    }
#if defined(MADV_HUGEPAGE)
    // Fewer page-table walks for panels and activations; refusal costs nothing but that.
    constexpr size_t kHugePageBytes = size_t{2} << 20;
    if (bytes >= kHugePageBytes) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return static_cast<std::byte*>(memory);
  }
};

uint32_t usable_processors() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
#endif
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<uint32_t>(online) : 1;
}

const cpu::KernelTable& choose_table(const std::string& isa) {
  if (isa.empty()) return cpu::kernels_for_this_processor();
  std::string known;
  for (const cpu::KernelTable* table : cpu::kernels_that_run_here()) {
    if (table->isa == isa) return *table;
    known += (known.empty() ? "" : ", ") + std::string(table->isa);
  }
  throw InvalidInput("cpu: instruction set '" + isa + "' does not run here; these do: " + known);
}

// One dispatch, resolved: what the threads need, and nothing that they share but `next`.
struct Launch {
  cpu::Kernel run = nullptr;
  const std::byte* params = nullptr;
  std::vector<std::byte*> buffers;
  bool barrier_before = false;
  std::atomic<uint64_t> next{0};
};

struct CpuStep final : PreparedStep {
  CpuStep(const cpu::KernelTable* from, size_t count) : table(from), launches(count) {}
  const cpu::KernelTable* table;
  std::vector<Launch> launches;
};

class CpuDevice final : public HostDevice {
 public:
  explicit CpuDevice(const DeviceOptions& options)
      : table_(choose_table(options.isa)),
        pool_(options.threads ? options.threads : usable_processors()),
        scratch_(allocate(cpu::kScratchBytes * pool_.num_threads())) {
    if (options.threads > kMaxThreads) {
      throw InvalidInput("cpu: " + grouped(options.threads) + " threads asked for, at most " +
                         grouped(kMaxThreads) + " are sensible");
    }
    for (uint32_t lane = 0; lane < pool_.num_threads(); ++lane) free_lanes_.push_back(lane);
    for (const cpu::NamedKernel& kernel : table_.kernels) kernels_.emplace(kernel.name, kernel.run);
  }

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    return "CPU, " + std::string(table_.isa) + ", " + std::to_string(pool_.num_threads()) +
           (pool_.num_threads() == 1 ? " thread" : " threads");
  }
  DType activation_dtype() const override { return DType::f32; }
  size_t weight_alignment_bytes() const override { return 1; }

  Buffer allocate(size_t bytes) override {
    return std::make_shared<OwnedMemory>(bytes < 1 ? 1 : bytes);
  }
  Ticket submit(const Step& step) override;
  // A lane is a thread: the caller's.
  uint32_t lanes() const override { return pool_.num_threads(); }
  Ticket submit_beside(const Step& step) override;

 private:
  static constexpr uint32_t kMaxThreads = 1024;
  CpuStep& prepare(const Step& step) const;
  void refuse_forked_process() const;
  std::byte* scratch_of(uint32_t thread) const {
    return scratch_->host() + thread * cpu::kScratchBytes;
  }
  std::optional<uint32_t> take_lane();
  void give_lane_back(uint32_t lane);

  const cpu::KernelTable& table_;
  ThreadPool pool_;
  Buffer scratch_;
  std::unordered_map<std::string_view, cpu::Kernel> kernels_;
  std::shared_mutex whole_;  // the pool's step alone, or steps on lanes
  std::mutex lanes_mutex_;
  std::vector<uint32_t> free_lanes_;  // and with them the scratch of as many threads
};

CpuStep& CpuDevice::prepare(const Step& step) const {
  auto* known = dynamic_cast<CpuStep*>(step.prepared().get());
  if (known && known->table == &table_) return *known;
  auto fresh = std::make_shared<CpuStep>(&table_, step.dispatches().size());
  for (size_t i = 0; i < fresh->launches.size(); ++i) {
    const Dispatch& dispatch = step.dispatches()[i];
    const auto kernel = kernels_.find(dispatch.kernel);
    if (kernel == kernels_.end()) {
      throw InvalidInput("cpu: there is no kernel named '" + dispatch.kernel + "'");
    }
    Launch& launch = fresh->launches[i];
    launch.run = kernel->second;
    launch.params = dispatch.params.data();
    launch.barrier_before = dispatch.barrier_before;
    for (const Binding& binding : dispatch.bindings) launch.buffers.push_back(binding.view.host());
  }
  step.prepared() = fresh;
  return *fresh;
}

void CpuDevice::refuse_forked_process() const {
  if (!pool_.is_in_forked_process()) return;
  throw DeviceError(
      "cpu: this process was forked from the one that opened the device; "
      "load the engine in this process");
}

std::optional<uint32_t> CpuDevice::take_lane() {
  std::lock_guard lock(lanes_mutex_);
  if (free_lanes_.empty()) return std::nullopt;
  const uint32_t lane = free_lanes_.back();
  free_lanes_.pop_back();
  return lane;
}

void CpuDevice::give_lane_back(uint32_t lane) {
  std::lock_guard lock(lanes_mutex_);
  free_lanes_.push_back(lane);
}

Ticket CpuDevice::submit_beside(const Step& step) {
  refuse_forked_process();
  std::shared_lock whole(whole_);
  CpuStep& prepared = prepare(step);  // may throw, so it comes before the lane
  const std::optional<uint32_t> lane = take_lane();
  if (!lane) {
    whole.unlock();
    return submit(step);
  }
  for (Launch& launch : prepared.launches) {
    launch.next.store(0, std::memory_order_relaxed);
    launch.run(
        {launch.buffers.data(), launch.params, cpu::Work(&launch.next, 1), scratch_of(*lane)});
  }
  give_lane_back(*lane);
  return 0;
}

Ticket CpuDevice::submit(const Step& step) {
  refuse_forked_process();
  std::lock_guard lock(mutex_);
  std::unique_lock whole(whole_);
  CpuStep& prepared = prepare(step);
  for (Launch& launch : prepared.launches) launch.next.store(0, std::memory_order_relaxed);
  pool_.run([&](uint32_t thread) {
    std::byte* scratch = scratch_of(thread);
    for (Launch& launch : prepared.launches) {
      if (launch.barrier_before) pool_.barrier();
      launch.run({launch.buffers.data(), launch.params,
                  cpu::Work(&launch.next, pool_.num_threads()), scratch});
    }
  });
  return 0;
}

}  // namespace

std::shared_ptr<Device> make_cpu_device(const DeviceOptions& options) {
  return std::make_shared<CpuDevice>(options);
}

}  // namespace lily
