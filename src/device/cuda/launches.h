// A step as the driver takes it: functions, argument bytes and extents, resolved once; and the same
// as a graph. Knows no stream's state and no device above it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/cuda/context.h"
#include "device/cuda/kernels.h"
#include "device/device.h"

namespace lily::cuda {

// What a kernel receives; metal/clang declares the same.
struct Arguments {
  static constexpr size_t kMostBuffers = 24, kMostParamBytes = 128;
  uint64_t buffers[kMostBuffers];
  uint8_t params[kMostParamBytes];
};

struct Launch {
  std::string kernel;
  CUfunction function;
  bool begins_early;
  uint32_t groups[3], threads[3];
  Arguments arguments;
};

class CudaStep final : public PreparedStep {
 public:
  // Throws InvalidInput for kernels that are not there, and for dispatches that do not fit.
  CudaStep(std::shared_ptr<const Context> context, Kernels& kernels, const Step& step);
  ~CudaStep() override;
  CudaStep(const CudaStep&) = delete;
  CudaStep& operator=(const CudaStep&) = delete;

  const Context& context() const { return *context_; }
  const std::vector<Launch>& launches() const { return launches_; }
  bool has_run() const { return has_run_; }
  void set_has_run() { has_run_ = true; }

  // Enqueues one launch. The result is the driver's.
  CUresult enqueue(const Launch& launch) const;
  // All launches, in order, as one graph: built when first asked for.
  CUgraphExec graph();

 private:
  std::shared_ptr<const Context> context_;
  std::vector<Launch> launches_;
  Handle<CUgraphExec> graph_;
  bool has_run_ = false;
};

// "kernel 'norm_rms_f32' [7x1x1 groups of 256x1x1]"
std::string describe(const Launch& launch);

}  // namespace lily::cuda
