// Gated delta net: one fused step at decode; convolution and gates, then the recurrence, at
// prefill. The ring of the convolution's last inputs and the state matrices are the layer's whole
// memory.
#include "ops/check.h"

namespace lily::ops {
namespace {

uint64_t conv_channels(const DeltaParams& params) {
  return 2ull * params.key_heads * params.key_dim + uint64_t{params.value_heads} * params.value_dim;
}
uint64_t value_width(const DeltaParams& params) {
  return uint64_t{params.value_heads} * params.value_dim;
}

void check_state(const Check& check, const DeltaParams& params, const char* name,
                 const Tensor& state) {
  check.f32(name, state,
            {{"value_heads", params.value_heads},
             {"value_dim", params.value_dim},
             {"key_dim", params.key_dim}});
}

DeltaParams check_delta(const Check& check, const DeltaTensors& layer, uint32_t position) {
  const DeltaParams params{.tokens = check.count("tokens", layer.proj.dim(0)),
                           .key_heads = check.count("key_heads", layer.key_heads),
                           .value_heads = check.count("value_heads", layer.value_heads),
                           .key_dim = check.count("key_dim", layer.key_dim),
                           .value_dim = check.count("value_dim", layer.value_dim),
                           .position = position,
                           .eps = layer.eps};
  if (params.value_heads % params.key_heads != 0) {
    check.fail("value_heads is " + std::to_string(params.value_heads) +
               ", expected a multiple of key_heads (" + std::to_string(params.key_heads) + ")");
  }
  if (params.key_dim > 256 || params.value_dim > 256) {
    check.fail("key_dim is " + std::to_string(params.key_dim) + " and value_dim " +
               std::to_string(params.value_dim) + ", expected up to 256");
  }
  const uint64_t channels = check.count("conv channels", conv_channels(params));
  const Extent heads{"value_heads", params.value_heads};
  check.f32("proj", layer.proj,
            {{"tokens", params.tokens},
             {"channels + value_heads * (value_dim + 2)",
              channels + value_width(params) + 2ull * params.value_heads}});
  check.f32("conv_weight", layer.conv_weight, {{"channels", channels}, {"taps", kConvWidth}});
  check.f32("conv_ring", layer.conv_ring, {{"taps", kConvWidth}, {"channels", channels}});
  check.f32("decay_rate", layer.decay_rate, {heads});
  check.f32("dt_bias", layer.dt_bias, {heads});
  check.f32("gain", layer.gain, {{"value_dim", params.value_dim}});
  check_state(check, params, "state", layer.state);
  check.eps(layer.eps);
  if (uint64_t{position} + params.tokens > UINT32_MAX) {
    check.fail("position is " + std::to_string(position) + ", past what 32 bits count");
  }
  return params;
}

void check_between(const Check& check, const DeltaParams& params, const Tensor& qkv,
                   const Tensor& gates) {
  check.f32("qkv", qkv, {{"tokens", params.tokens}, {"channels", conv_channels(params)}});
  check.f32(
      "gates", gates,
      {{"tokens", params.tokens}, {"decay and beta", 2}, {"value_heads", params.value_heads}});
}

}  // namespace

void delta_step(Step& step, const Tensor& y, const Tensor& next_state, const DeltaTensors& layer,
                const Tensor& cursor) {
  const Check check("delta_step");
  const DeltaParams params = check_delta(check, layer, 0);
  if (params.tokens != 1) {
    check.fail("proj has " + std::to_string(params.tokens) + " rows, expected 1 (one token)");
  }
  check.record("cursor", cursor, "Cursor", sizeof(Cursor));
  check.f32("y", y, {{"one token", 1}, {"value_heads * value_dim", value_width(params)}});
  check_state(check, params, "next_state", next_state);

  step.add(kernel_name("delta_step", DType::f32),
           Bindings()
               .in(cursor)
               .in(layer.proj)
               .in(layer.conv_weight)
               .in(layer.decay_rate)
               .in(layer.dt_bias)
               .in(layer.gain)
               .inout(layer.conv_ring)
               .in(layer.state)
               .out(next_state)
               .out(y),
           params, delta_step_grid(params.value_heads, params.key_dim, params.value_dim));
}

void delta_conv(Step& step, const Tensor& qkv, const Tensor& gates, const DeltaTensors& layer,
                uint32_t position) {
  const Check check("delta_conv");
  const DeltaParams params = check_delta(check, layer, position);
  check_between(check, params, qkv, gates);

  step.add(kernel_name("delta_conv", DType::f32),
           Bindings()
               .in(layer.proj)
               .in(layer.conv_weight)
               .in(layer.decay_rate)
               .in(layer.dt_bias)
               .in(layer.conv_ring)
               .out(qkv)
               .out(gates),
           params, delta_conv_grid(params.tokens, 2 * params.key_heads + params.value_heads));
  // Every part of the convolution may still read what this overwrites, so it is a launch of its
  // own.
  step.add(kernel_name("delta_carry", DType::f32), Bindings().in(layer.proj).inout(layer.conv_ring),
           params, delta_carry_grid(static_cast<uint32_t>(qkv.dim(1))));
}

void delta_chunk(Step& step, const Tensor& y, const Tensor& qkv, const Tensor& gates,
                 const DeltaTensors& layer) {
  const Check check("delta_chunk");
  const DeltaParams params = check_delta(check, layer, 0);
  check_between(check, params, qkv, gates);
  check.activation("y", y,
                   {{"tokens", params.tokens}, {"value_heads * value_dim", value_width(params)}});

  step.add(kernel_name("delta_chunk", DType::f32),
           Bindings().inout(qkv).in(gates).inout(layer.state), params,
           delta_chunk_grid(step.tiles(), params));
  step.add(kernel_name("delta_norm", y.dtype),
           Bindings().in(qkv).in(layer.proj).in(layer.gain).out(y), params,
           delta_heads_grid(params.tokens, params.value_heads));
}

}  // namespace lily::ops
