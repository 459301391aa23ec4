// rope: RMSNorm and RoPE of a chunk's q and k, and its k and v into the KV cache (prefill). A
// simdgroup takes a head of one token. Knows no layer.
#include "heads.h"

namespace lily {

enum : uint { kRopeThreads = 256, kRopeSimdgroups = kRopeThreads / kLanes };

// proj f32 [T, Q*2*D + 2*G*D], caches C [G, P, D], q A [T, Q, D]
template <class C, class A>
[[kernel]] void rope_append(device const float* proj [[buffer(0)]],
                            device const float* q_gain [[buffer(1)]],
                            device const float* k_gain [[buffer(2)]],
                            device const float* inv_freq [[buffer(3)]],
                            device C* k_cache [[buffer(4)]], device C* v_cache [[buffer(5)]],
                            device A* q [[buffer(6)]], constant AttentionParams& p [[buffer(7)]],
                            LILY_PLACE) {
  LILY_THREADGROUP(float, rows, kRopeSimdgroups* kMaxHeadDim);
  const ProjectionRow row = projection_row(p);
  const uint t = group.y, index = group.x * kRopeSimdgroups + simdgroup;
  if (index >= p.q_heads + p.kv_heads) return;
  const bool is_query = index < p.q_heads;
  const uint head = is_query ? index : index - p.q_heads, position = p.position + t;
  device const float* from = proj + ulong(t) * row.stride();
  threadgroup float* mine = rows + simdgroup * kMaxHeadDim;
  float value[kHeadElements];
  norm_head(from + (is_query ? row.query(head) : row.key(head)), is_query ? q_gain : k_gain,
            p.head_dim, p.eps, lane, value);
  Rotation rotation;
  rotation.begin(inv_freq, p.rotary_dims, position, lane);
  rotation.apply(value, p.rotary_dims, lane, mine);
  if (is_query) {
    device A* to = q + (ulong(t) * p.q_heads + head) * p.head_dim;
    for (uint i = lane; i < p.head_dim; i += kLanes) to[i] = A(mine[i]);
    return;
  }
  const ulong at = (ulong(head) * p.capacity + position) * p.head_dim;
  for (uint i = lane; i < p.head_dim; i += kLanes) {
    k_cache[at + i] = C(mine[i]);
    v_cache[at + i] = C(from[row.value(head) + i]);
  }
}

LILY_KERNEL(rope_append_f32, 256, rope_append<float, float>)
LILY_KERNEL(rope_append_bf16, 256, rope_append<bfloat, float>)
LILY_KERNEL(rope_append_bf16_bf16, 256, rope_append<bfloat, bfloat>)
LILY_KERNEL(rope_append_bf16_f16, 256, rope_append<bfloat, half>)

}  // namespace lily
