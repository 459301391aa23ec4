// Norm and rotation of queries and keys at prefill, and the write of keys and values into the
// cache.
#include "ops/check.h"

namespace lily::ops {

void rope_append(Step& step, const Tensor& q, const AttentionTensors& layer, uint32_t position) {
  const Check check("rope_append");
  const AttentionParams params = check_attention(check, layer, position);
  check.activation(
      "q", q,
      {{"tokens", params.tokens}, {"q_heads", params.q_heads}, {"head_dim", params.head_dim}});

  step.add(kernel_name("rope_append", layer.k_cache.dtype) + activation_suffix(q.dtype),
           Bindings()
               .in(layer.proj)
               .in(layer.q_gain)
               .in(layer.k_gain)
               .in(layer.inv_freq)
               .inout(layer.k_cache)
               .inout(layer.v_cache)
               .out(q),
           params, rope_grid(params.tokens, params.q_heads + params.kv_heads));
}

}  // namespace lily::ops
