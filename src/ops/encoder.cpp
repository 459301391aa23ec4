// What the gate's bidirectional encoder needs beside the linear products: embedding sums, LayerNorm
// after the residual, attention within windows, GELU, and the pooled row of a window.
#include <cmath>

#include "ops/check.h"

namespace lily::ops {
namespace {

// Windows that `offsets` delimits. What it holds is on the device: who writes it answers for it.
uint32_t check_windows(const Check& check, const Tensor& offsets) {
  const uint32_t windows = check.count("windows", offsets.dim(0) - 1, 65'535);
  check.u32("offsets", offsets, {{"windows + 1", windows + uint64_t{1}}});
  return windows;
}

void check_norm(const Check& check, const Tensor& y, const Tensor& hidden, const Tensor& gain,
                const Tensor& shift, EncoderParams& params) {
  params.tokens = check.count("tokens", hidden.dim(0));
  params.width = check.count("hidden's width", hidden.dim(1));
  check.f32("hidden", hidden, {{"tokens", params.tokens}, {"hidden", params.width}});
  check.f32("gain", gain, {{"hidden", params.width}});
  check.f32("shift", shift, {{"hidden", params.width}});
  check.activation("y", y, {{"tokens", params.tokens}, {"hidden", params.width}});
  check.eps(params.eps);
}

}  // namespace

void encoder_embed(Step& step, const Tensor& y, const Tensor& hidden, const Tensor& positions,
                   const Tensor& forms, const Tensor& position_table, const Tensor& form_table,
                   const Tensor& gain, const Tensor& shift, float eps) {
  const Check check("encoder_embed");
  EncoderParams params{.eps = eps};
  check_norm(check, y, hidden, gain, shift, params);
  check.u32("positions", positions, {{"tokens", params.tokens}});
  check.u32("forms", forms, {{"tokens", params.tokens}});
  check.f32("position_table", position_table,
            {{"positions", position_table.dim(0)}, {"hidden", params.width}});
  check.f32("form_table", form_table, {{"forms", form_table.dim(0)}, {"hidden", params.width}});
  step.add(kernel_name("encoder_embed", y.dtype),
           Bindings()
               .in(positions)
               .in(forms)
               .in(position_table)
               .in(form_table)
               .in(gain)
               .in(shift)
               .inout(hidden)
               .out(y),
           params, encoder_rows_grid(params.tokens));
}

void encoder_norm(Step& step, const Tensor& y, const Tensor& hidden, const Tensor& bias,
                  const Tensor& gain, const Tensor& shift, float eps) {
  const Check check("encoder_norm");
  EncoderParams params{.eps = eps};
  check_norm(check, y, hidden, gain, shift, params);
  check.f32("bias", bias, {{"hidden", params.width}});
  step.add(kernel_name("encoder_norm", y.dtype),
           Bindings().in(bias).in(gain).in(shift).inout(hidden).out(y), params,
           encoder_rows_grid(params.tokens));
}

void encoder_attention(Step& step, const Tensor& y, const Tensor& qkv, const Tensor& bias,
                       const Tensor& offsets, uint32_t heads, uint32_t longest) {
  const Check check("encoder_attention");
  EncoderParams params{};
  params.windows = check_windows(check, offsets);
  params.tokens = check.count("tokens", qkv.dim(0));
  params.heads = check.count("heads", heads, 1024);
  params.width = params.heads * kEncoderHeadDim;
  params.scale = 1.0f / std::sqrt(static_cast<float>(kEncoderHeadDim));
  check.count("the longest window", longest, kEncoderMaxWindow);
  const Extent columns{"3 * heads * 32", uint64_t{3} * params.width};
  check.f32("qkv", qkv, {{"tokens", params.tokens}, columns});
  check.f32("bias", bias, {columns});
  check.activation("y", y, {{"tokens", params.tokens}, {"heads * 32", params.width}});
  step.add(kernel_name("encoder_attention", y.dtype),
           Bindings().in(qkv).in(bias).in(offsets).out(y), params,
           encoder_attention_grid(longest, params.heads, params.windows));
}

void encoder_gelu(Step& step, const Tensor& y, const Tensor& x, const Tensor& bias) {
  const Check check("encoder_gelu");
  EncoderParams params{};
  params.tokens = check.count("tokens", x.dim(0));
  params.width = check.count("width", x.dim(1));
  check.f32("x", x, {{"tokens", params.tokens}, {"width", params.width}});
  check.f32("bias", bias, {{"width", params.width}});
  check.activation("y", y, {{"tokens", params.tokens}, {"width", params.width}});
  step.add(kernel_name("encoder_gelu", y.dtype), Bindings().in(x).in(bias).out(y), params,
           encoder_gelu_grid(x.elements()));
}

void encoder_pool(Step& step, const Tensor& y, const Tensor& hidden, const Tensor& offsets) {
  const Check check("encoder_pool");
  EncoderParams params{};
  params.windows = check_windows(check, offsets);
  params.tokens = check.count("tokens", hidden.dim(0));
  params.width = check.count("hidden's width", hidden.dim(1));
  check.f32("hidden", hidden, {{"tokens", params.tokens}, {"hidden", params.width}});
  check.activation("y", y,
                   {{"windows", params.windows}, {"2 * hidden", uint64_t{2} * params.width}});
  step.add(kernel_name("encoder_pool", y.dtype), Bindings().in(hidden).in(offsets).out(y), params,
           encoder_pool_grid(params.width, params.windows));
}

}  // namespace lily::ops
