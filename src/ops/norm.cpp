// RMSNorm of rows of the residual stream. Gains come as they multiply: the loader has added the 1
// of zero-centred checkpoints.
#include "ops/check.h"

namespace lily::ops {

void norm_rms(Step& step, const Tensor& y, const Tensor& x, const Tensor& gain, float eps) {
  const Check check("norm_rms");
  const uint32_t tokens = check.count("tokens", x.dim(0));
  const uint32_t hidden = check.count("hidden", x.dim(1));
  check.f32("x", x, {{"tokens", tokens}, {"hidden", hidden}});
  check.f32("gain", gain, {{"hidden", hidden}});
  check.activation("y", y, {{"tokens", tokens}, {"hidden", hidden}});
  check.eps(eps);

  const NormRmsParams params{.tokens = tokens, .hidden = hidden, .eps = eps};
  step.add(kernel_name("norm_rms", y.dtype), Bindings().in(x).in(gain).out(y), params,
           norm_grid(tokens));
}

}  // namespace lily::ops
