// What every CPU kernel receives, and the table in which the CPU device finds it by name. One
// source file per kernel family, compiled once per instruction set (see isa/), mirrors metal/.
// Knows no model and no scheduling beyond Work.
//
// Kernel names and bindings, in binding order; the GPU kernels of metal/ take the same. <w> is the
// storage of a weight matrix (f32, bf16, q4, q8) and stands for three bindings: weight, scales,
// biases (the weight again where not quantised). <k> is the storage of the KV cache (f32, bf16).
// in unless marked; * = inout, > = out. Segments: kMaxSegments matrices, the last ones the first
// again.
//
//   embed_rows_<w>           ids, table<w>, >hidden
//   norm_rms_f32             x, gain, >y
//   linear_gemv_<w>          x, >y, segments<w>
//   linear_gemv_add_<w>      x, *y, weight<w>
//   linear_gemv_norm_<w>     x, gain, >y, segments<w>
//   linear_gemm_<w>          x, >y, segments<w>
//   linear_gemm_add_<w>      x, *y, weight<w>
//   rope_append_<k>          proj, q_gain, k_gain, inv_freq, *k_cache, *v_cache, >q
//   attention_prefill_<k>    q, proj, k_cache, v_cache, >y
//   attention_decode_<k>     cursor, proj, q_gain, k_gain, inv_freq, *k_cache, *v_cache, >partial
//   attention_merge_f32      cursor, proj, partial, >y
//   delta_step_f32           cursor, proj, conv_weight, decay_rate, dt_bias, gain, *conv_ring,
//                            state, >next_state, >y
//   delta_conv_f32           proj, conv_weight, decay_rate, dt_bias, conv_ring, >qkv, >gates
//   delta_carry_f32          proj, *conv_ring
//   delta_chunk_f32          *qkv, gates, *state
//   delta_norm_f32           qkv, proj, gain, >y
//   moe_router_<w1>_<w2>     x, gain, router<w1>, shared_router<w1>, shared_gate<w2>,
//                            shared_up<w2>, >logits, >shared_act
//   moe_gate_up_<w>          x, gain, logits, gate<w>, up<w>, >act, >ids, >weights
//   moe_down_<w1>_<w2>       act, shared_act, ids, weights, down<w1>, shared_down<w2>, *residual,
//                            logits
//   moe_route_f32            logits, >ids, >weights
//   moe_sort_u32             ids, >order, >offsets
//   moe_grouped_gate_up_<w>  x, order, offsets, gate<w>, up<w>, >act
//   moe_grouped_down_<w>     act, order, offsets, down<w>, >y
//   moe_combine_f32          y, shared, weights, *residual
//   sample_logits_<w>        x, gain, lm_head<w>, >logits, >blocks
//   sample_draw_f32          blocks, sampler, *cursor, >result
//   sample_score_f32         logits, targets, >logprobs, >best
//   encoder_embed_f32        positions, forms, position_table, form_table, gain, shift, *hidden, >y
//   encoder_norm_f32         bias, gain, shift, *hidden, >y
//   encoder_attention_f32    qkv, bias, offsets, >y
//   encoder_gelu_f32         x, bias, >y
//   encoder_pool_f32         hidden, offsets, >y
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lily::cpu {

// The share of a kernel's work that one thread takes. Every thread of the pool runs the kernel with
// the same Work; units are handed out in order, so that uneven threads still finish together.
// A unit's result never depends on which thread computed it: any thread count gives the same bits.
class Work {
 public:
  Work(std::atomic<uint64_t>* next, uint32_t num_threads)
      : next_(next), num_threads_(num_threads) {}
  uint32_t num_threads() const { return num_threads_; }

  // Calls body(begin, end) for disjoint ranges of [0, total) of at most `grain` units.
  template <class Body>
  void for_ranges(uint64_t total, uint64_t grain, Body&& body) const {
    for (;;) {
      const uint64_t begin = next_->fetch_add(grain, std::memory_order_relaxed);
      if (begin >= total) return;
      body(begin, begin + grain < total ? begin + grain : total);
    }
  }

 private:
  std::atomic<uint64_t>* next_;
  uint32_t num_threads_;
};

struct Args {
  std::byte* const* buffers;  // host addresses in binding order; nullptr for an empty binding
  const void* params;
  Work work;
  std::byte*
      scratch;  // this thread's own memory, kScratchBytes, 64-byte aligned, kept between calls

  template <class T>
  T* at(size_t index) const {
    return reinterpret_cast<T*>(buffers[index]);
  }
  template <class Params>
  const Params& as() const {
    return *static_cast<const Params*>(params);
  }
};

// Enough for a dequantised panel of weights, a tile of activations and a converted row.
inline constexpr size_t kScratchBytes = size_t{4} << 20;

using Kernel = void (*)(const Args&);
struct NamedKernel {
  std::string_view name;
  Kernel run;
};

// The table of one instruction set.
struct KernelTable {
  std::string_view isa;
  std::span<const NamedKernel> kernels;
};
// The best table for the processor that runs this.
const KernelTable& kernels_for_this_processor();
// Every table that can run here, best first: tests and benchmarks compare them.
std::span<const KernelTable* const> kernels_that_run_here();

}  // namespace lily::cpu
