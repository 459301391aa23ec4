// THE SEAM. A device allocates buffers, runs named kernels, and waits; nothing else differs between
// machines. A Step is data: it can be printed, timed per dispatch, compared between devices, and
// replayed. This file knows no layer, no model and no particular device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lily {

// Memory that a device can address. Destroyed with its last handle.
class BufferStorage {
 public:
  virtual ~BufferStorage() = default;
  size_t bytes() const { return bytes_; }
  // Host address of the memory, or nullptr where the host cannot reach it (CUDA).
  std::byte* host() const { return host_; }

 protected:
  BufferStorage(size_t bytes, std::byte* host) : bytes_(bytes), host_(host) {}

 private:
  size_t bytes_;
  std::byte* host_;
};
using Buffer = std::shared_ptr<BufferStorage>;

// A window into a buffer. Empty where it has none, as no binding may be.
struct View {
  Buffer buffer;
  size_t offset_bytes = 0;
  size_t size_bytes = 0;

  View() = default;
  View(Buffer whole) : buffer(std::move(whole)), size_bytes(buffer ? buffer->bytes() : 0) {}
  View(Buffer part, size_t offset, size_t size)
      : buffer(std::move(part)), offset_bytes(offset), size_bytes(size) {}

  explicit operator bool() const { return buffer != nullptr; }
  std::byte* host() const { return buffer ? buffer->host() + offset_bytes : nullptr; }
  // A part of this view; throws InvalidInput when it leaves the view.
  View slice(size_t offset, size_t size) const;
};

enum class Access : uint8_t { in, out, inout };

struct Binding {
  View view;
  Access access;
};
inline Binding in(View view) { return {std::move(view), Access::in}; }
inline Binding out(View view) { return {std::move(view), Access::out}; }
inline Binding inout(View view) { return {std::move(view), Access::inout}; }

// How a GPU cuts a kernel's work: threadgroups, threads in each, and which tile size, as the suffix
// that the kernel's name takes there. The CPU device splits kernels by its own rule and ignores it.
struct Grid {
  uint32_t groups[3] = {1, 1, 1};
  uint32_t threads[3] = {1, 1, 1};
  std::string variant;
};

// Whose tile sizes a step is recorded with (ops/tiles.h); devices that ignore grids take any.
// apple_tensor: Apple's, with tensor ops where there are kernels of them.
enum class Tiles : uint8_t { apple, apple_tensor, nvidia };

// One kernel launch, as data. Bindings stand in the order of the kernel's [[buffer(i)]]; the
// parameter bytes (one struct of metal/params.h) are bound at the next index.
struct Dispatch {
  std::string kernel;
  std::vector<Binding> bindings;
  std::vector<std::byte> params;
  Grid grid;
  bool barrier_before = false;  // set by Step::add: reads or overwrites what an earlier one wrote
};

// A device's own form of a step: resolved functions, a command buffer's plan, a graph.
class PreparedStep {
 public:
  virtual ~PreparedStep() = default;
};

// Dispatches recorded for one forward pass, or a piece of one.
class Step {
 public:
  explicit Step(Tiles tiles = Tiles::apple) : tiles_(tiles) {}
  // Moves only: a prepared step points into the dispatches.
  Step(Step&&) = default;
  Step& operator=(Step&&) = default;

  template <class Params>
  void add(std::string kernel, std::vector<Binding> bindings, const Params& params, Grid grid) {
    static_assert(std::is_trivially_copyable_v<Params>);
    std::vector<std::byte> bytes(sizeof(Params));
    std::memcpy(bytes.data(), &params, sizeof(Params));
    add(Dispatch{std::move(kernel), std::move(bindings), std::move(bytes), grid});
  }
  void add(Dispatch dispatch);

  std::span<const Dispatch> dispatches() const { return dispatches_; }
  bool empty() const { return dispatches_.empty(); }
  Tiles tiles() const { return tiles_; }
  void clear();
  // One line per dispatch: kernel, grid, bindings with sizes and access.
  std::string describe() const;

  // What the device that ran this step last derived from it, so that a replay derives nothing. Only
  // devices touch it; adding to the step drops it.
  std::shared_ptr<PreparedStep>& prepared() const { return prepared_; }

 private:
  struct Touched {
    const BufferStorage* buffer;
    size_t begin, end;
    bool written;
  };
  Tiles tiles_;
  std::vector<Dispatch> dispatches_;
  std::vector<Touched> since_barrier_;
  mutable std::shared_ptr<PreparedStep> prepared_;
};

// Something that a device says of itself or of its machine, for people and for reports.
struct Fact {
  std::string name, value;
};

// Storage types of activations and of the KV cache.
enum class DType : uint8_t { f32, bf16, f16, u32, u8 };
size_t dtype_bytes(DType dtype);
const char* dtype_name(DType dtype);

// Which submission. Later ones are greater; a device runs them in order.
using Ticket = uint64_t;

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;    // "cpu", "metal", "cuda"
  virtual std::string description() const = 0;  // for people: processor, instruction set, threads
  // What is enabled here and what is not, and the state the machine is in now (heat, pressure).
  virtual std::vector<Fact> facts() const { return {}; }
  // The type that activations between kernels have on this device (never the residual stream).
  virtual DType activation_dtype() const = 0;
  // Whose tile sizes this device's steps should be recorded with.
  virtual Tiles tiles() const { return Tiles::apple; }
  // Where in a buffer a weight matrix may begin; a file's matrix off this grid must be copied.
  virtual size_t weight_alignment_bytes() const = 0;
  // What the device could hold in all, and what it could still take now.
  virtual uint64_t memory_total_bytes() const = 0;
  virtual uint64_t memory_available_bytes() const = 0;

  // Zeroed memory. Throws OutOfMemory.
  virtual Buffer allocate(size_t bytes) = 0;
  // The same for a few bytes that the host reads at host(), once the step that writes them is done.
  virtual Buffer allocate_shared(size_t bytes) = 0;
  // Memory mapped by `owner`, used in place and kept alive with the buffer.
  virtual Buffer wrap(std::shared_ptr<const void> owner, const void* mapped, size_t bytes) = 0;

  // Announces that a step of these kernels will be submitted: a device that compiles kernels may
  // begin to. Errors are left to submit.
  virtual void prewarm(const Step&) {}
  // Runs as if in order, after everything submitted before. Unknown kernels throw InvalidInput
  // here.
  virtual Ticket submit(const Step& step) = 0;
  // Whether submit returns before the step is done, so that the host's work costs the device
  // nothing while another step is under way.
  virtual bool runs_behind() const { return false; }
  // As submit, but steps that share nothing they write may be under way at once, from as many
  // threads as the device has lanes. More, or none, are run one after another.
  virtual uint32_t lanes() const { return 1; }
  virtual Ticket submit_beside(const Step& step) { return submit(step); }
  // Returns when everything submitted is done; throws DeviceError naming the kernel that failed.
  virtual void wait() = 0;
  // The same for what was submitted up to this ticket; what came later may be under way still.
  virtual void wait(Ticket ticket) = 0;

  // Microseconds that each of `repeats` runs took, after runs that do not count: by the device's
  // own clock, or by the host's around submit and wait where it has none.
  virtual std::vector<double> time_us(const Step& step, uint32_t repeats);

  // Copies, ordered after everything submitted; the host side is safe to touch on return. A read
  // returns when what was submitted is done, and throws as wait() does.
  virtual void read(const View& from, void* to, size_t bytes) = 0;
  virtual void write(const View& to, const void* from, size_t bytes) = 0;
  virtual void copy(const View& to, const View& from, size_t bytes) = 0;
  // Zeroes, ordered likewise.
  virtual void clear(const View& view) = 0;
};

// Runs the kernels that a device has beside its portable ones, against those. Says what is wrong
// with them, or nothing; throws what the device throws.
using KernelCheck = std::function<std::string(Device&)>;

struct DeviceOptions {
  uint32_t threads = 0;    // CPU: 0 takes all processors this process may use
  std::string isa;         // CPU: instruction set by name (tests, benchmarks); empty: the best here
  KernelCheck check = {};  // Metal: of tensor ops, not used without it (ops/tensor_check.h)
};

// "auto" takes metal, then cuda, then cpu. Throws InvalidInput for an unknown name and DeviceError
// (saying what was looked for) where the named device is not there.
std::shared_ptr<Device> open_device(std::string_view name, const DeviceOptions& options);

}  // namespace lily
