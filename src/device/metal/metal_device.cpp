// See metal_device.h.
#include "device/metal/metal_device.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <system_error>

#include "core/error.h"
#include "device/metal/commands.h"
#include "device/metal/flights.h"
#include "device/metal/gpu.h"
#include "device/metal/health.h"
#include "device/metal/kernels.h"
#include "device/metal/memory.h"
#include "device/metal/pacer.h"
#include "device/metal/tensor_units.h"

namespace lily {
namespace {

using namespace metal;

class MetalDevice final : public Device {
 public:
  MetalDevice(std::shared_ptr<const Gpu> gpu, KernelPlaces places, double most_us,
              KernelCheck check)
      : gpu_(gpu),
        kernels_(gpu, std::move(places)),
        order_(std::make_unique<Order>(*gpu)),
        pacer_(most_us),
        flights_(pacer_),
        tensor_units_(*gpu, *this, std::move(check)) {}
  ~MetalDevice() override {
    const Pool pool;
    flights_.finish();
    ahead_.buffer.reset();
  }

  std::string_view name() const override { return "metal"; }
  std::string description() const override { return gpu_->description(); }
  // Before M3, arithmetic on bfloat is emulated; weights are stored as bfloat everywhere.
  DType activation_dtype() const override { return gpu_->has_bfloat() ? DType::bf16 : DType::f16; }
  Tiles tiles() const override {
    return tensor_units_.are_used() ? Tiles::apple_tensor : Tiles::apple;
  }
  // Kernels read weights 16 bytes at a time.
  size_t weight_alignment_bytes() const override { return 16; }
  uint64_t memory_total_bytes() const override { return gpu_->working_set_bytes(); }
  uint64_t memory_available_bytes() const override {
    const uint64_t total = gpu_->working_set_bytes(), taken = gpu_->allocated_bytes();
    return total > taken ? total - taken : 0;
  }
  std::vector<Fact> facts() const override;

  Buffer allocate(size_t bytes) override { return Memory::allocate(gpu_, bytes); }
  // All of its memory is the host's as well.
  Buffer allocate_shared(size_t bytes) override { return allocate(bytes); }
  Buffer wrap(std::shared_ptr<const void> owner, const void* mapped, size_t bytes) override {
    return Memory::wrap(gpu_, std::move(owner), mapped, bytes);
  }
  void prewarm(const Step& step) override;
  Ticket submit(const Step& step) override;
  bool runs_behind() const override { return true; }
  void wait() override;
  void wait(Ticket ticket) override;
  std::vector<double> time_us(const Step& step, uint32_t repeats) override;
  void read(const View& from, void* to, size_t bytes) override;
  void write(const View& to, const void* from, size_t bytes) override;
  void copy(const View& to, const View& from, size_t bytes) override;
  void clear(const View& view) override;

 private:
  // A replay that is encoded and not committed. One for the device: each takes a place in the
  // queue.
  struct Ahead {
    std::weak_ptr<const MetalStep> step;
    Ref<MTL::CommandBuffer> buffer;
  };
  // All that follow: with the lock held.
  std::shared_ptr<MetalStep> prepare(const Step& step);
  void enqueue(const std::shared_ptr<MetalStep>& step);
  void encode_ahead(const MetalStep& after);
  void finish();
  std::byte* host_of(const View& view, size_t bytes) const;

  std::shared_ptr<const Gpu> gpu_;
  std::mutex mutex_;
  Kernels kernels_;
  std::unique_ptr<Order> order_;
  Pacer pacer_;
  Flights flights_;
  Ahead ahead_;
  std::weak_ptr<MetalStep> last_;  // that was submitted
  TensorUnits tensor_units_;
};

std::vector<Fact> MetalDevice::facts() const {
  const auto yes = [](bool is_so) { return std::string(is_so ? "yes" : "no"); };
  return {
      {"GPU", gpu_->name()},
      {"macOS", gpu_->os()},
      {"memory for the GPU", human_bytes(gpu_->working_set_bytes())},
      {"taken by this process", human_bytes(gpu_->allocated_bytes())},
      {"longest buffer", human_bytes(gpu_->max_buffer_bytes())},
      {"activations", dtype_name(activation_dtype())},
      {"residency set", yes(gpu_->residency().is_supported())},
      {"tensor units", tensor_units_.describe()},
      {"kernels", kernels_.describe_code()},
      {"pipeline cache", kernels_.describe_cache()},
      {"thermal state", thermal_state()},
      {"memory pressure", memory_pressure()},
  };
}

void MetalDevice::prewarm(const Step& step) {
  for (const Dispatch& dispatch : step.dispatches()) {
    const uint32_t* threads = dispatch.grid.threads;
    kernels_.prewarm(dispatch.kernel + dispatch.grid.variant, threads[0] * threads[1] * threads[2]);
  }
}

std::shared_ptr<MetalStep> MetalDevice::prepare(const Step& step) {
  auto known = std::dynamic_pointer_cast<MetalStep>(step.prepared());
  if (known && &known->gpu() == gpu_.get()) return known;
  auto fresh = std::make_shared<MetalStep>(gpu_, kernels_, step);
  step.prepared() = fresh;
  return fresh;
}

Ticket MetalDevice::submit(const Step& step) {
  const Pool pool;
  std::lock_guard lock(mutex_);
  gpu_->refuse_forked_process();
  if (step.empty()) return flights_.last_ticket();
  flights_.collect();
  const std::shared_ptr<MetalStep> prepared = prepare(step);
  gpu_->residency().before_submission();
  enqueue(prepared);
  return flights_.last_ticket();
}

void MetalDevice::enqueue(const std::shared_ptr<MetalStep>& step) {
  if (const auto last = last_.lock()) last->set_follower(step);
  last_ = step;
  const size_t all = step->launches().size();
  if (ahead_.buffer && ahead_.step.lock() == step) {
    const Ref<MTL::CommandBuffer> buffer = std::move(ahead_.buffer);
    flights_.commit(*buffer.get(), step, 0, all);
    return encode_ahead(*step);
  }
  size_t count = 0;
  for (size_t begin = 0; begin < all; begin += count) {
    count = pacer_.take(step->work().subspan(begin));
    flights_.commit(*step->encode(begin, count, *order_).get(), step, begin, count);
  }
  encode_ahead(*step);
}

// What followed a step the last time will follow it again: a token's step the one before, by turns.
void MetalDevice::encode_ahead(const MetalStep& after) {
  const std::shared_ptr<const MetalStep> step = after.follower();
  if (!step || pacer_.take(step->work()) != step->launches().size()) return;
  ahead_.buffer.reset();  // before another takes its place
  ahead_ = {step, step->encode(0, step->launches().size(), *order_)};
}

void MetalDevice::wait() {
  const Pool pool;
  std::lock_guard lock(mutex_);
  finish();
}

void MetalDevice::wait(Ticket ticket) {
  const Pool pool;
  std::lock_guard lock(mutex_);
  if (!flights_.wait(ticket)) finish();
}

void MetalDevice::finish() {
  const std::optional<std::string> failure = flights_.finish();
  if (!failure) return;
  // A pass that did not run has not updated the fence.
  ahead_.buffer.reset();
  order_ = std::make_unique<Order>(*gpu_);
  throw DeviceError("metal: " + *failure);
}

std::vector<double> MetalDevice::time_us(const Step& step, uint32_t repeats) {
  std::vector<double> times;
  for (uint32_t run = 0; run < repeats + 2; ++run) {  // two do not count
    submit(step);
    wait();
    const Interval interval = flights_.last_interval();
    if (run >= 2) times.push_back((interval.end_s - interval.begin_s) * 1e6);
  }
  return times;
}

// --- copies: by the host, for the memory is its own as well

std::byte* MetalDevice::host_of(const View& view, size_t bytes) const {
  const View part = view.slice(0, bytes);
  const auto* memory = dynamic_cast<const Memory*>(part.buffer.get());
  if (memory == nullptr || &memory->gpu() != gpu_.get()) {
    throw InvalidInput("metal: a copy names memory of another device");
  }
  return part.host();
}

void MetalDevice::read(const View& from, void* to, size_t bytes) {
  const Pool pool;
  std::lock_guard lock(mutex_);
  const std::byte* source = host_of(from, bytes);
  finish();
  std::memcpy(to, source, bytes);
}

void MetalDevice::write(const View& to, const void* from, size_t bytes) {
  const Pool pool;
  std::lock_guard lock(mutex_);
  std::byte* target = host_of(to, bytes);
  finish();
  std::memcpy(target, from, bytes);
}

void MetalDevice::copy(const View& to, const View& from, size_t bytes) {
  const Pool pool;
  std::lock_guard lock(mutex_);
  std::byte* target = host_of(to, bytes);
  const std::byte* source = host_of(from, bytes);
  finish();
  std::memmove(target, source, bytes);
}

void MetalDevice::clear(const View& view) {
  const Pool pool;
  std::lock_guard lock(mutex_);
  std::byte* target = host_of(view, view.size_bytes);
  finish();
  std::memset(target, 0, view.size_bytes);
}

// --- where files are

// The metallib that was installed with the library or program that this code is in.
std::filesystem::path find_metallib() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&find_metallib), &here) == 0) return {};
  const auto path = std::filesystem::path(here.dli_fname).parent_path() / "lily.metallib";
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? path : std::filesystem::path();
}

// Where macOS keeps what programs can make again.
std::filesystem::path find_cache_folder() {
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return std::filesystem::path(home) / "Library" / "Caches" / "lily";
}

}  // namespace

std::shared_ptr<Device> make_metal_device(const MetalOptions& options) {
  KernelPlaces places{options.sources, options.metallib, options.cache_folder};
  if (places.metallib.empty()) places.metallib = find_metallib();
  if (places.cache.empty()) places.cache = find_cache_folder();
  return std::make_shared<MetalDevice>(std::make_shared<Gpu>(), std::move(places), options.most_us,
                                       options.check);
}

}  // namespace lily
