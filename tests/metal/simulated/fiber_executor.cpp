// Runs the simulated GPU's dispatches as the device "fibers" does: the Metal kernels themselves,
// compiled for this machine.
#include <algorithm>
#include <filesystem>

#include "device/fibers/executor.h"
#include "state.h"

namespace lily::simulated {
namespace {

// Memory of the simulated GPU, as a buffer of the seam.
class GpuMemory final : public BufferStorage {
 public:
  explicit GpuMemory(const Bound& bound) : BufferStorage(bound.bytes, bound.memory) {}
};

class FiberExecutor final : public Executor {
 public:
  std::unique_ptr<Kernel> find(const std::string& name) override {
    const fibers::Kernel* known = fibers_.find(name);
    if (known == nullptr) return nullptr;
    return std::make_unique<Kernel>(
        Kernel{known->threads, known->bindings, known->params_bytes,
               std::filesystem::path(known->source).filename().string()});
  }

  std::vector<std::string> names() override {
    std::vector<std::string> all;
    for (const fibers::Kernel& kernel : fibers::all_kernels()) all.emplace_back(kernel.name);
    return all;
  }

  std::vector<Touched> run(const Launch& launch) override {
    const fibers::Kernel& kernel = *fibers_.find(launch.kernel);
    Dispatch dispatch;
    dispatch.kernel = launch.kernel;
    dispatch.params = launch.params;
    std::ranges::copy(launch.groups, dispatch.grid.groups);
    std::ranges::copy(launch.threads, dispatch.grid.threads);
    for (size_t at = 0; at < launch.buffers.size(); ++at) {
      const Bound& bound = launch.buffers[at];
      const bool is_writable = (kernel.writable >> at & 1) != 0;
      dispatch.bindings.push_back(
          {View(std::make_shared<GpuMemory>(bound)), is_writable ? Access::inout : Access::in});
    }
    std::vector<Touched> touched;
    for (const fibers::Touched& span : fibers_.run(dispatch)) {
      touched.push_back({span.begin, span.end, span.written});
    }
    return touched;
  }

 private:
  fibers::Executor fibers_{0, 1};
};

}  // namespace

std::shared_ptr<Executor> default_executor() { return std::make_shared<FiberExecutor>(); }

}  // namespace lily::simulated
