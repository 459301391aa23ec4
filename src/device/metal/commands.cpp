// See commands.h.
#include "device/metal/commands.h"

#include <array>
#include <cstring>
#include <set>

#include "core/error.h"

namespace lily::metal {
namespace {

constexpr size_t kMostBindings = 31;      // of buffers, with the params
constexpr size_t kMostParamBytes = 4096;  // of setBytes
constexpr size_t kOffsetAlignment = 4;    // of a buffer's offset
constexpr size_t kMostNamed = 8;          // kernels, in a message

void check_fits(const std::string& kernel, const Dispatch& dispatch) {
  const auto require = [&](const char* what, uint64_t given, uint64_t least, uint64_t most) {
    if (given >= least && given <= most) return;
    throw InvalidInput("metal: kernel '" + kernel + "' has " + grouped(given) + " " + what +
                       ", expected " + grouped(least) + " to " + grouped(most));
  };
  require("bindings", dispatch.bindings.size(), 0, kMostBindings - 1);
  require("bytes of parameters", dispatch.params.size(), 1, kMostParamBytes);
  const uint32_t* threads = dispatch.grid.threads;
  require("threads in a group", uint64_t{threads[0]} * threads[1] * threads[2], 1, 1024);
  const uint32_t* groups = dispatch.grid.groups;
  require("threadgroups", uint64_t{groups[0]} * groups[1] * groups[2], 1, UINT32_MAX);
}

Place find_place(const Gpu& gpu, const std::string& kernel, const View& view) {
  const auto* memory = dynamic_cast<const Memory*>(view.buffer.get());
  if (memory == nullptr || &memory->gpu() != &gpu) {
    throw InvalidInput("metal: kernel '" + kernel + "' is bound to memory of another device");
  }
  if (view.offset_bytes % kOffsetAlignment != 0) {
    throw InvalidInput("metal: kernel '" + kernel + "' is bound at byte " +
                       grouped(view.offset_bytes) + " of a buffer, expected a multiple of 4");
  }
  return memory->find(view.offset_bytes, view.size_bytes);
}

MTL::Size size_of(const uint32_t (&extents)[3]) {
  return MTL::Size(extents[0], extents[1], extents[2]);
}

// What an encoder has bound: setting the same again costs a call for nothing.
struct BoundNow {
  const Kernel* kernel = nullptr;
  std::array<Place, kMostBindings> places{};
  std::array<bool, kMostBindings> is_set{};
};

void bind(MTL::ComputeCommandEncoder& encoder, const Launch& launch, BoundNow& now) {
  if (now.kernel != launch.kernel) encoder.setComputePipelineState(launch.kernel->pipeline.get());
  now.kernel = launch.kernel;
  size_t index = 0;
  for (const Place& place : launch.places) {
    Place& known = now.places[index];
    if (!now.is_set[index] || known.buffer != place.buffer) {
      encoder.setBuffer(place.buffer, place.offset_bytes, index);
    } else if (known.offset_bytes != place.offset_bytes) {
      encoder.setBufferOffset(place.offset_bytes, index);
    }
    known = place;
    now.is_set[index++] = true;
  }
  encoder.setBytes(launch.params.data(), launch.params.size(), index);
  now.is_set[index] = false;
}

}  // namespace

MetalStep::MetalStep(std::shared_ptr<const Gpu> gpu, Kernels& kernels, const Step& step)
    : gpu_(std::move(gpu)) {
  launches_.reserve(step.dispatches().size());
  for (const Dispatch& dispatch : step.dispatches()) {
    const std::string name = dispatch.kernel + dispatch.grid.variant;
    check_fits(name, dispatch);
    const Grid& grid = dispatch.grid;
    Launch launch{};
    launch.kernel = &kernels.find(name, grid.threads[0] * grid.threads[1] * grid.threads[2]);
    for (const Binding& binding : dispatch.bindings) {
      launch.places.push_back(find_place(*gpu_, name, binding.view));
      buffers_.push_back(binding.view.buffer);
    }
    launch.params = dispatch.params;
    launch.groups = size_of(grid.groups);
    launch.threads = size_of(grid.threads);
    launch.barrier_before = dispatch.barrier_before;
    work_.push_back(
        {launch.kernel->number, uint64_t{grid.groups[0]} * grid.groups[1] * grid.groups[2]});
    launches_.push_back(std::move(launch));
  }
}

Ref<MTL::CommandBuffer> MetalStep::encode(size_t begin, size_t count, const Order& order) const {
  auto buffer = NS::RetainPtr(gpu_->queue().commandBufferWithUnretainedReferences());
  MTL::ComputeCommandEncoder& encoder = *buffer->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  encoder.waitForFence(&order.fence());
  BoundNow now;
  for (size_t at = begin; at < begin + count; ++at) {
    const Launch& launch = launches_[at];
    // The fence orders the first with all that came before.
    if (launch.barrier_before && at != begin) encoder.memoryBarrier(MTL::BarrierScopeBuffers);
    bind(encoder, launch, now);
    encoder.dispatchThreadgroups(launch.groups, launch.threads);
  }
  encoder.updateFence(&order.fence());
  encoder.endEncoding();
  return buffer;
}

std::string MetalStep::name_kernels(size_t begin, size_t count) const {
  std::vector<std::string_view> names;
  std::set<std::string_view> seen;
  for (size_t at = begin; at < begin + count; ++at) {
    const std::string& name = launches_[at].kernel->name;
    if (seen.insert(name).second) names.push_back(name);
  }
  std::string text = names.size() == 1 ? "kernel " : "kernels ";
  for (size_t at = 0; at < names.size() && at < kMostNamed; ++at) {
    text += (at ? ", " : "") + std::string(names[at]);
  }
  if (names.size() > kMostNamed) text += " and " + grouped(names.size() - kMostNamed) + " more";
  return text;
}

}  // namespace lily::metal
