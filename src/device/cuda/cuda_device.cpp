// See cuda_device.h.
#include "device/cuda/cuda_device.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>

#include "core/error.h"
#include "device/cuda/context.h"
#include "device/cuda/kernels.h"
#include "device/cuda/launches.h"

namespace lily {
namespace {

using namespace cuda;

// Kernels that a message lists before it says how many more there are.
constexpr size_t kMostNamed = 8;

class CudaDevice final : public Device {
 public:
  CudaDevice(const std::string& library, std::span<const PtxModule> modules)
      : context_(std::make_shared<Context>(library)), kernels_(context_, modules) {
    context_->enter();
    for (Handle<CUevent>& mark : marks_) mark = make_event();
    const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
    blocking_ = blocking != nullptr && std::strcmp(blocking, "1") == 0;
  }

  ~CudaDevice() override {
    // Before the modules go, whose kernels may still run.
    if (context_->try_enter()) {
      driver().stream_synchronize.address(stream());
    } else {
      for (Handle<CUevent>& mark : marks_) mark.forget();
    }
  }

  std::string_view name() const override { return "cuda"; }
  std::string description() const override { return context_->description(); }
  DType activation_dtype() const override { return DType::bf16; }
  Tiles tiles() const override { return Tiles::nvidia; }
  // Kernels read weights 16 bytes at a time.
  size_t weight_alignment_bytes() const override { return 16; }
  uint64_t memory_total_bytes() const override { return memory().second; }
  uint64_t memory_available_bytes() const override { return memory().first; }

  Buffer allocate(size_t bytes) override;
  Buffer allocate_shared(size_t bytes) override;
  Buffer wrap(std::shared_ptr<const void> owner, const void* mapped, size_t bytes) override;
  Ticket submit(const Step& step) override;
  bool runs_behind() const override { return !blocking_; }
  void wait() override;
  void wait(Ticket ticket) override;
  std::vector<double> time_us(const Step& step, uint32_t repeats) override;
  void read(const View& from, void* to, size_t bytes) override;
  void write(const View& to, const void* from, size_t bytes) override;
  void copy(const View& to, const View& from, size_t bytes) override;
  void clear(const View& view) override;

 private:
  // All that follow: with the lock held.
  void enter() const;
  const Driver& driver() const { return context_->driver(); }
  CUstream stream() const { return context_->stream(); }
  Handle<CUevent> make_event() const;
  std::shared_ptr<CudaStep> prepare(const Step& step);
  void enqueue(const std::shared_ptr<CudaStep>& step);
  void enqueue_launches(const CudaStep& step);
  void finish();
  void upload(const DeviceMemory& to, size_t offset, const void* from, size_t bytes);
  // Something on the stream failed: itself, or a kernel before it.
  [[noreturn]] void fail(const std::string& what, CUresult result);
  template <class... Parameters, class... Arguments>
  void call(const Function<Parameters...>& function, Arguments... arguments) {
    const CUresult result = function.address(arguments...);
    if (result != CUDA_SUCCESS) fail(function.symbol + suspects(), result);
  }
  std::string suspects() const;
  std::pair<size_t, size_t> memory() const;

  std::shared_ptr<const Context> context_;
  mutable std::mutex mutex_;
  Kernels kernels_;
  // Behind the latest submissions, by ticket. A ticket that is older waits for a later one.
  std::array<Handle<CUevent>, 4> marks_;
  Ticket last_ticket_ = 0;
  // Submitted and not known to be done.
  struct Pending {
    Ticket ticket;
    std::shared_ptr<const CudaStep> step;
  };
  std::deque<Pending> pending_;
  std::string lost_;  // why nothing can run any more
  bool blocking_;
};

const DeviceMemory& memory_of(const View& view) {
  const auto* memory = dynamic_cast<const DeviceMemory*>(view.buffer.get());
  if (memory == nullptr) throw InvalidInput("cuda: a copy names memory of another device");
  return *memory;
}

// After these the driver refuses everything that the process asks of its context.
bool ends_the_context(CUresult result) {
  return result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_OUT_OF_MEMORY &&
         result != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
}

void CudaDevice::enter() const {
  if (!lost_.empty()) throw DeviceError("cuda: the device was lost earlier: " + lost_);
  context_->enter();
}

std::pair<size_t, size_t> CudaDevice::memory() const {
  std::lock_guard lock(mutex_);
  enter();
  size_t available = 0, total = 0;
  driver().call(driver().memory_info, &available, &total);
  return {available, total};
}

Buffer CudaDevice::allocate(size_t bytes) {
  std::lock_guard lock(mutex_);
  enter();
  auto memory = DeviceMemory::allocate(context_, bytes < 1 ? 1 : bytes);
  call(driver().memory_set, memory->address(), static_cast<unsigned char>(0), memory->bytes(),
       stream());
  return memory;
}

Buffer CudaDevice::allocate_shared(size_t bytes) {
  std::lock_guard lock(mutex_);
  enter();
  return DeviceMemory::allocate_shared(context_, bytes < 1 ? 1 : bytes);
}

// A copy: weights are read at the rate of the device's memory. The owner stays, as the seam
// promises.
Buffer CudaDevice::wrap(std::shared_ptr<const void> owner, const void* mapped, size_t bytes) {
  std::lock_guard lock(mutex_);
  enter();
  auto memory = DeviceMemory::allocate(context_, bytes < 1 ? 1 : bytes, std::move(owner));
  upload(*memory, 0, mapped, bytes);
  return memory;
}

std::shared_ptr<CudaStep> CudaDevice::prepare(const Step& step) {
  auto known = std::dynamic_pointer_cast<CudaStep>(step.prepared());
  if (known && &known->context() == context_.get()) return known;
  auto fresh = std::make_shared<CudaStep>(context_, kernels_, step);
  step.prepared() = fresh;
  return fresh;
}

Ticket CudaDevice::submit(const Step& step) {
  std::lock_guard lock(mutex_);
  enter();
  if (!step.empty()) enqueue(prepare(step));
  return last_ticket_;
}

// A graph costs more to build than its kernels cost to launch once, so only a replay pays for it.
void CudaDevice::enqueue(const std::shared_ptr<CudaStep>& step) {
  pending_.push_back({++last_ticket_, step});
  if (blocking_ || !step->has_run()) {
    enqueue_launches(*step);
  } else {
    call(driver().graph_launch, step->graph(), stream());
  }
  step->set_has_run();
  call(driver().event_record, marks_[last_ticket_ % marks_.size()].get(), stream());
}

void CudaDevice::enqueue_launches(const CudaStep& step) {
  for (const Launch& launch : step.launches()) {
    const CUresult launched = step.enqueue(launch);
    if (launched != CUDA_SUCCESS) fail("cuLaunchKernel of " + describe(launch), launched);
    if (!blocking_) continue;
    const CUresult done = driver().stream_synchronize.address(stream());
    if (done != CUDA_SUCCESS) fail("cuStreamSynchronize after " + describe(launch), done);
  }
}

void CudaDevice::wait() {
  std::lock_guard lock(mutex_);
  enter();
  finish();
}

void CudaDevice::wait(Ticket ticket) {
  std::lock_guard lock(mutex_);
  enter();
  call(driver().event_synchronize, marks_[ticket % marks_.size()].get());
  while (!pending_.empty() && pending_.front().ticket <= ticket) pending_.pop_front();
}

void CudaDevice::finish() {
  call(driver().stream_synchronize, stream());
  pending_.clear();
}

void CudaDevice::fail(const std::string& what, CUresult result) {
  const std::string message = what + ": " + driver().describe(result);
  if (ends_the_context(result)) {
    pending_.clear();
    lost_ = message;
  }
  throw DeviceError("cuda: " + message);
}

std::string CudaDevice::suspects() const {
  std::vector<std::string> names;
  std::set<std::string_view> seen;
  for (const Pending& pending : pending_) {
    for (const Launch& launch : pending.step->launches()) {
      if (seen.insert(launch.kernel).second) names.push_back(launch.kernel);
    }
  }
  if (names.empty()) return "";
  if (names.size() == 1) return " after kernel '" + names[0] + "'";
  std::string text = " after one of the kernels ";
  for (size_t at = 0; at < names.size() && at < kMostNamed; ++at) {
    text += (at ? ", " : "") + names[at];
  }
  if (names.size() > kMostNamed) {
    text += " and " + std::to_string(names.size() - kMostNamed) + " more";
  }
  return text + " (CUDA_LAUNCH_BLOCKING=1 tells which)";
}

Handle<CUevent> CudaDevice::make_event() const {
  CUevent event = nullptr;
  driver().call(driver().event_create, &event, unsigned{CU_EVENT_DEFAULT});
  return Handle<CUevent>(event, driver().event_destroy);
}

std::vector<double> CudaDevice::time_us(const Step& step, uint32_t repeats) {
  std::lock_guard lock(mutex_);
  enter();
  const std::shared_ptr<CudaStep> prepared = prepare(step);
  const Handle<CUevent> begin = make_event(), end = make_event();
  // The first run compiles, the second builds the graph.
  for (int run = 0; run < 2; ++run) enqueue(prepared);
  finish();
  std::vector<double> times;
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    call(driver().event_record, begin.get(), stream());
    enqueue(prepared);
    call(driver().event_record, end.get(), stream());
    finish();
    float milliseconds = 0;
    call(driver().event_elapsed_time, &milliseconds, begin.get(), end.get());
    times.push_back(milliseconds * 1e3);
  }
  return times;
}

void CudaDevice::upload(const DeviceMemory& to, size_t offset, const void* from, size_t bytes) {
  if (bytes == 0) return;
  call(driver().copy_to_device, to.address() + offset, from, bytes, stream());
  // Only then may the caller touch `from`: the driver reads pinned memory later.
  finish();
}

void CudaDevice::write(const View& to, const void* from, size_t bytes) {
  const View part = to.slice(0, bytes);
  std::lock_guard lock(mutex_);
  enter();
  upload(memory_of(part), part.offset_bytes, from, bytes);
}

void CudaDevice::read(const View& from, void* to, size_t bytes) {
  const View part = from.slice(0, bytes);
  std::lock_guard lock(mutex_);
  enter();
  if (bytes == 0) return;
  const CUdeviceptr address = memory_of(part).address() + part.offset_bytes;
  call(driver().copy_to_host, to, address, bytes, stream());
  finish();
}

void CudaDevice::copy(const View& to, const View& from, size_t bytes) {
  const View target = to.slice(0, bytes), source = from.slice(0, bytes);
  std::lock_guard lock(mutex_);
  enter();
  if (bytes == 0) return;
  call(driver().copy_on_device, memory_of(target).address() + target.offset_bytes,
       memory_of(source).address() + source.offset_bytes, bytes, stream());
}

void CudaDevice::clear(const View& view) {
  std::lock_guard lock(mutex_);
  enter();
  if (view.size_bytes == 0) return;
  call(driver().memory_set, memory_of(view).address() + view.offset_bytes,
       static_cast<unsigned char>(0), view.size_bytes, stream());
}

}  // namespace

std::shared_ptr<Device> make_cuda_device(const std::string& library,
                                         std::span<const PtxModule> modules) {
  if (modules.empty()) {
    throw DeviceError(
        "cuda: this build of Lily has no CUDA kernels (CMake option LILY_CUDA, which needs clang)");
  }
  return std::make_shared<CudaDevice>(library, modules);
}

}  // namespace lily
