// Gated full attention: many rows over the cache at prefill, one row cut into parts of the context
// at decode. The context's length at decode is device memory: the engine checks it.
#include <cmath>

#include "ops/check.h"

namespace lily::ops {

AttentionParams check_attention(const Check& check, const AttentionTensors& layer,
                                uint32_t position) {
  const uint32_t tokens = check.count("tokens", layer.proj.dim(0));
  const uint32_t q_heads = check.count("q_heads", layer.q_heads);
  const uint32_t kv_heads = check.count("kv_heads", layer.kv_heads);
  const uint32_t head_dim = check.count("head_dim", layer.head_dim);
  const uint32_t rotary_dims = check.count("rotary_dims", layer.rotary_dims);
  const uint32_t capacity = check.count("capacity", layer.k_cache.dim(1));
  if (q_heads % kv_heads != 0) {
    check.fail("q_heads is " + std::to_string(q_heads) + ", expected a multiple of kv_heads (" +
               std::to_string(kv_heads) + ")");
  }
  check.count("q_heads / kv_heads", q_heads / kv_heads, kMaxQueryGroup);
  if (head_dim % 2 != 0 || head_dim > 256) {
    check.fail("head_dim is " + std::to_string(head_dim) + ", expected an even number up to 256");
  }
  if (rotary_dims % 2 != 0 || rotary_dims > head_dim) {
    check.fail("rotary_dims is " + std::to_string(rotary_dims) +
               ", expected an even number up to head_dim (" + std::to_string(head_dim) + ")");
  }
  const uint64_t columns = (q_heads + uint64_t{kv_heads}) * 2 * head_dim;
  check.f32("proj", layer.proj,
            {{"tokens", tokens}, {"2 * head_dim * (q_heads + kv_heads)", columns}});
  check.f32("q_gain", layer.q_gain, {{"head_dim", head_dim}});
  check.f32("k_gain", layer.k_gain, {{"head_dim", head_dim}});
  check.f32("inv_freq", layer.inv_freq, {{"rotary_dims / 2", rotary_dims / 2}});
  for (const auto& [name, cache] :
       {std::pair{"k_cache", &layer.k_cache}, std::pair{"v_cache", &layer.v_cache}}) {
    check.cache(name, *cache,
                {{"kv_heads", kv_heads}, {"capacity", capacity}, {"head_dim", head_dim}});
  }
  if (layer.v_cache.dtype != layer.k_cache.dtype) {
    check.fail(std::string("v_cache is ") + dtype_name(layer.v_cache.dtype) + ", expected " +
               dtype_name(layer.k_cache.dtype) + " as k_cache");
  }
  if (uint64_t{position} + tokens > capacity) {
    check.fail("rows " + std::to_string(position) + " to " +
               std::to_string(uint64_t{position} + tokens) + " leave k_cache, which has " +
               std::to_string(capacity) + " (capacity)");
  }
  check.eps(layer.eps);
  return {.tokens = tokens,
          .q_heads = q_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .rotary_dims = rotary_dims,
          .capacity = capacity,
          .position = position,
          .eps = layer.eps,
          .scale = 1.0f / std::sqrt(static_cast<float>(head_dim))};
}

void attention_prefill(Step& step, const Tensor& y, const Tensor& q, const AttentionTensors& layer,
                       uint32_t position) {
  const Check check("attention_prefill");
  const AttentionParams params = check_attention(check, layer, position);
  const uint64_t width = uint64_t{params.q_heads} * params.head_dim;
  check.activation(
      "q", q,
      {{"tokens", params.tokens}, {"q_heads", params.q_heads}, {"head_dim", params.head_dim}});
  check.activation("y", y, {{"tokens", params.tokens}, {"q_heads * head_dim", width}});
  if (q.dtype != y.dtype) {
    check.fail(std::string("q is ") + dtype_name(q.dtype) + ", expected " + dtype_name(y.dtype) +
               " as y");
  }

  step.add(kernel_name("attention_prefill", layer.k_cache.dtype) + activation_suffix(q.dtype),
           Bindings().in(q).in(layer.proj).in(layer.k_cache).in(layer.v_cache).out(y), params,
           attention_prefill_grid(step.tiles(), q.dtype, params));
}

namespace {

AttentionParams check_decode(const Check& check, const Tensor& partial,
                             const AttentionTensors& layer, const Tensor& cursor) {
  const AttentionParams params = check_attention(check, layer, 0);
  if (params.tokens != 1) {
    check.fail("proj has " + std::to_string(params.tokens) + " rows, expected 1 (one token)");
  }
  check.f32("partial", partial,
            {{"q_heads", params.q_heads},
             {"kAttentionMaxSplits", kAttentionMaxSplits},
             {"head_dim + 2", params.head_dim + 2ull}});
  check.record("cursor", cursor, "Cursor", sizeof(Cursor));
  return params;
}

}  // namespace

void attention_decode(Step& step, const Tensor& partial, const AttentionTensors& layer,
                      const Tensor& cursor) {
  const AttentionParams params = check_decode(Check("attention_decode"), partial, layer, cursor);
  step.add(kernel_name("attention_decode", layer.k_cache.dtype),
           Bindings()
               .in(cursor)
               .in(layer.proj)
               .in(layer.q_gain)
               .in(layer.k_gain)
               .in(layer.inv_freq)
               .inout(layer.k_cache)
               .inout(layer.v_cache)
               .out(partial),
           params, attention_decode_grid(step.tiles(), params.kv_heads, params.head_dim));
}

void attention_merge(Step& step, const Tensor& y, const Tensor& partial,
                     const AttentionTensors& layer, const Tensor& cursor) {
  const Check check("attention_merge");
  const AttentionParams params = check_decode(check, partial, layer, cursor);
  const uint64_t width = uint64_t{params.q_heads} * params.head_dim;
  check.f32("y", y, {{"one token", 1}, {"q_heads * head_dim", width}});

  step.add(kernel_name("attention_merge", DType::f32),
           Bindings().in(cursor).in(layer.proj).in(partial).out(y), params,
           attention_merge_grid(params.q_heads, params.head_dim));
}

}  // namespace lily::ops
