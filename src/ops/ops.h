// One function per operation: check shapes, fill the params, choose the kernel's name and grid,
// record a dispatch. Ops own no memory, wait for nothing and name no device. Shapes as in
// metal/params.h; every tensor is dense and row-major. A wrong shape throws InvalidInput that names
// the op, the tensor, what was given and what was expected.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "device/device.h"
#include "params.h"

namespace lily {

// A typed window into a buffer.
struct Tensor {
  View view;
  DType dtype = DType::f32;
  std::vector<uint64_t> shape;

  uint64_t elements() const;
  uint64_t dim(size_t axis) const { return axis < shape.size() ? shape[axis] : 1; }
  // Rows [begin, end) along the first axis.
  Tensor rows(uint64_t begin, uint64_t end) const;
};

// How a weight matrix is stored. q4 and q8 are MLX affine: w = scale * q + bias per group.
enum class Storage : uint8_t { f32, bf16, q4, q8 };
const char* storage_name(Storage storage);
// Bytes of one row of `cols` codes (scales and biases not counted).
uint64_t storage_row_bytes(Storage storage, uint64_t cols);

// A linear weight [rows, cols], or a stack of experts [experts, rows, cols] in which expert e
// starts at row e * expert_stride_rows (larger than `rows` where gate and up share one tensor).
struct Matrix {
  Storage storage = Storage::f32;
  uint64_t experts = 1, rows = 0, cols = 0;
  uint64_t expert_stride_rows = 0;
  uint32_t group_size = 0;      // 0 where not quantised
  View weight, scales, biases;  // scales, biases: bf16 [experts, rows, cols / group_size]
};

namespace ops {

// hidden[t] = table[ids[t]].   ids u32 [T], table [V, H], hidden f32 [T, H]
void embed_rows(Step& step, const Tensor& hidden, const Tensor& ids, const Matrix& table);

// y = x * rsqrt(mean(x^2) + eps) * gain.   x f32 [T, H], gain f32 [H], y [T, H]
void norm_rms(Step& step, const Tensor& y, const Tensor& x, const Tensor& gain, float eps);

// y = x W^T; the matrices of `segments` (equal cols) stand side by side in y's columns.
// x [T, K], y f32 [T, sum of rows]. T = 1 takes the GEMV kernel, more the GEMM kernel.
void linear(Step& step, const Tensor& y, const Tensor& x, const std::vector<Matrix>& segments);
// y += x W^T, into the residual stream.
void linear_add(Step& step, const Tensor& y, const Tensor& x, const Matrix& weight);
// y = rms_norm(x, gain) W^T for one row, the norm folded into the GEMV.   x f32 [1, K]
void linear_norm(Step& step, const Tensor& y, const Tensor& x, const Tensor& gain, float eps,
                 const std::vector<Matrix>& segments);

// One attention layer's places. proj row: Q * [query D | gate D], then k G*D, then v G*D.
struct AttentionTensors {
  Tensor proj;              // f32 [T, Q*2*D + 2*G*D]
  Tensor q_gain, k_gain;    // f32 [D]
  Tensor inv_freq;          // f32 [rotary_dims / 2]
  Tensor k_cache, v_cache;  // f32 or bf16 [G, P, D]
  uint32_t q_heads, kv_heads, head_dim, rotary_dims;
  float eps;
};
// Prefill, first part: RMSNorm and RoPE of q and k, k and v into the cache at `position`.
// q [T, Q, D]
void rope_append(Step& step, const Tensor& q, const AttentionTensors& layer, uint32_t position);
// Prefill, second part: causal attention of q over the cache, times sigmoid(gate).   y [T, Q*D]
void attention_prefill(Step& step, const Tensor& y, const Tensor& q, const AttentionTensors& layer,
                       uint32_t position);
// Decode, first part: norm, RoPE, append, attention over parts of the context at the cursor.
// partial f32 [Q, kAttentionMaxSplits, D + 2]: unnormalised sum, then maximum and sum of weights.
void attention_decode(Step& step, const Tensor& partial, const AttentionTensors& layer,
                      const Tensor& cursor);
// Decode, second part: merges the parts, times sigmoid(gate).   y f32 [1, Q*D]
void attention_merge(Step& step, const Tensor& y, const Tensor& partial,
                     const AttentionTensors& layer, const Tensor& cursor);

// One gated-delta layer's places. proj row: q Hk*Dk | k Hk*Dk | v Hv*Dv | z Hv*Dv | b Hv | a Hv.
struct DeltaTensors {
  Tensor proj;         // f32 [T, C + Hv*Dv + 2*Hv]
  Tensor conv_weight;  // f32 [C, kConvWidth], oldest tap first
  Tensor conv_ring;    // f32 [kConvWidth, C]: the input of position p lives in row p % kConvWidth
  Tensor decay_rate;   // f32 [Hv]: -exp(A_log)
  Tensor dt_bias;      // f32 [Hv]
  Tensor gain;         // f32 [Dv]
  Tensor state;        // f32 [Hv, Dv, Dk]
  uint32_t key_heads, value_heads, key_dim, value_dim;
  float eps;
};
// Decode: convolution, SiLU, q/k norm, gates, recurrence and gated norm. Reads layer.state and
// leaves the state after this token in next_state, which may be the same.   y f32 [1, Hv*Dv]
void delta_step(Step& step, const Tensor& y, const Tensor& next_state, const DeltaTensors& layer,
                const Tensor& cursor);
// Prefill, first part.   qkv f32 [T, C] (q, k normalised, q scaled), gates f32 [T, 2, Hv] (decay
// factor exp(g), then beta)
void delta_conv(Step& step, const Tensor& qkv, const Tensor& gates, const DeltaTensors& layer,
                uint32_t position);
// Prefill, second part: the recurrence over the chunk, whose outputs replace v in qkv, then the
// gated norm.   y [T, Hv*Dv]
void delta_chunk(Step& step, const Tensor& y, const Tensor& qkv, const Tensor& gates,
                 const DeltaTensors& layer);

// One mixture-of-experts layer's weights.
struct MoeWeights {
  Matrix router, shared_router;  // [E, H], [1, H]
  Matrix gate, up, down;         // stacks [E, I, H], [E, I, H], [E, H, I]
  Matrix shared_gate, shared_up, shared_down;
  uint32_t slots;  // experts per token
};
// Decode 1: norm, router logits, the shared expert's logit, and its SwiGLU row.
// x f32 [1, H], gain f32 [H], logits f32 [1, E + 1] (last: shared), shared_act f32 [1, Is]
void moe_router(Step& step, const Tensor& logits, const Tensor& shared_act, const Tensor& x,
                const Tensor& gain, float eps, const MoeWeights& moe);
// Decode 2: top-k, softmax over it, and each chosen expert's SwiGLU row.
// act f32 [S, I], ids u32 [1, S], weights f32 [1, S + 1] (last: the shared expert's)
void moe_gate_up(Step& step, const Tensor& act, const Tensor& ids, const Tensor& weights,
                 const Tensor& logits, const Tensor& x, const Tensor& gain, float eps,
                 const MoeWeights& moe);
// Decode 3: residual += sum of weights * down(act) + shared weight * shared down.   f32 [1, H]
// `logits` are those that `ids` were chosen by: a kernel that begins early chooses for itself.
void moe_down(Step& step, const Tensor& residual, const Tensor& act, const Tensor& shared_act,
              const Tensor& logits, const Tensor& ids, const Tensor& weights,
              const MoeWeights& moe);
// Prefill 1: top-k of each row.   logits f32 [T, E + 1], ids u32 [T, S], weights f32 [T, S + 1]
void moe_route(Step& step, const Tensor& ids, const Tensor& weights, const Tensor& logits);
// Prefill 2: slots (t * S + s) sorted by expert, stable.   order u32 [T*S], offsets u32 [E + 1]
void moe_sort(Step& step, const Tensor& order, const Tensor& offsets, const Tensor& ids);
// Prefill 3: act[i] = SwiGLU row of order[i] in its expert.   x [T, H], act [T*S, I]
void moe_grouped_gate_up(Step& step, const Tensor& act, const Tensor& x, const Tensor& order,
                         const Tensor& offsets, const Matrix& gate, const Matrix& up,
                         uint32_t slots);
// Prefill 4: y[order[i]] = down of act[i].   y f32 [T*S, H]
void moe_grouped_down(Step& step, const Tensor& y, const Tensor& act, const Tensor& order,
                      const Tensor& offsets, const Matrix& down);
// Prefill 5: residual[t] += sum over slots of weight * y + shared weight * shared[t].
// y f32 [T*S, H], shared f32 [T, H], weights f32 [T, S + 1], residual f32 [T, H]
void moe_combine(Step& step, const Tensor& residual, const Tensor& y, const Tensor& shared,
                 const Tensor& weights);

// Final norm and lm_head of one row; each block of vocabulary rows keeps its best candidates.
// x f32 [1, H], gain f32 [H], logits f32 [1, V], blocks: SampleBlock [ceil(V / kSampleBlockRows)]
void sample_logits(Step& step, const Tensor& logits, const Tensor& blocks, const Tensor& x,
                   const Tensor& gain, float eps, const Matrix& lm_head);
// Merges the blocks, draws the token of position cursor.position + 1 by `sampler`, and feeds it
// back: cursor <- {token, position + 1}.   result: Sampled
void sample_draw(Step& step, const Tensor& result, const Tensor& blocks, const Tensor& sampler,
                 const Tensor& cursor, uint32_t vocab);
// log-probability of targets[t] in row t, and the row's arg-max (ties: lower id).
// logits f32 [T, V], targets u32 [T], logprobs f32 [T], best u32 [T]
void sample_score(Step& step, const Tensor& logprobs, const Tensor& best, const Tensor& logits,
                  const Tensor& targets);

// The gate's encoder: rows of several windows follow one another, offsets u32 [W + 1] say where
// each begins and the last ends. `longest` bounds the rows of a window. Where a row leaves for a
// product, y is its copy in the device's activation type.
//
// hidden[t] = layer_norm(hidden[t] + position_table[positions[t]] + form_table[forms[t]]), y its
// copy.   positions, forms u32 [T], tables f32 [., H], gain, shift f32 [H], hidden f32 [T, H]
void encoder_embed(Step& step, const Tensor& y, const Tensor& hidden, const Tensor& positions,
                   const Tensor& forms, const Tensor& position_table, const Tensor& form_table,
                   const Tensor& gain, const Tensor& shift, float eps);
// hidden[t] = layer_norm(hidden[t] + bias), y its copy.   bias, gain, shift f32 [H]
void encoder_norm(Step& step, const Tensor& y, const Tensor& hidden, const Tensor& bias,
                  const Tensor& gain, const Tensor& shift, float eps);
// Every row of a window attends to all of it, by each head.   qkv f32 [T, 3*Q*D] (without bias),
// bias f32 [3*Q*D], y [T, Q*D], D = kEncoderHeadDim
void encoder_attention(Step& step, const Tensor& y, const Tensor& qkv, const Tensor& bias,
                       const Tensor& offsets, uint32_t heads, uint32_t longest);
// y = gelu(x + bias), with the exact normal distribution.   x f32 [T, N], bias f32 [N], y [T, N]
void encoder_gelu(Step& step, const Tensor& y, const Tensor& x, const Tensor& bias);
// y[w] = mean of the window's rows, then their maximum.   hidden f32 [T, H], y [W, 2*H]
void encoder_pool(Step& step, const Tensor& y, const Tensor& hidden, const Tensor& offsets);

}  // namespace ops
}  // namespace lily
