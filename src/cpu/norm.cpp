// norm: RMSNorm of residual-stream rows (prefill; decode folds it into the GEMVs).
#include "cpu/register.h"

namespace lily::cpu::LILY_ISA {
namespace {

void norm_rms(const Args& args) {
  const auto& p = args.as<NormRmsParams>();
  const float* x = args.at<const float>(0);
  const float* gain = args.at<const float>(1);
  float* y = args.at<float>(2);
  const int hidden = static_cast<int>(p.hidden);
  args.work.for_ranges(p.tokens, 4, [&](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      rms_norm(x + t * hidden, gain, hidden, p.eps, y + t * hidden);
    }
  });
}

constexpr NamedKernel kKernels[] = {{"norm_rms_f32", norm_rms}};

}  // namespace

KernelList norm_kernels() { return kKernels; }

}  // namespace lily::cpu::LILY_ISA
