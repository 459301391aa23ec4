// rope: RMSNorm and RoPE of a chunk's q and k, and its k and v into the KV cache (prefill).
#include "cpu/heads.h"

namespace lily::cpu::LILY_ISA {
namespace {

template <class T>
void rope_append(const Args& args) {
  const auto& p = args.as<AttentionParams>();
  const ProjectionRow row(p);
  const float* proj = args.at<const float>(0);
  const float* q_gain = args.at<const float>(1);
  const float* k_gain = args.at<const float>(2);
  const float* inv_freq = args.at<const float>(3);
  T* k_cache = args.at<T>(4);
  T* v_cache = args.at<T>(5);
  float* q = args.at<float>(6);
  const int dim = row.head_dim, rotary = static_cast<int>(p.rotary_dims);
  args.work.for_ranges(p.tokens, 1, [&](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const float* from = proj + t * row.stride();
      const Rotation rotation(inv_freq, rotary / 2, p.position + static_cast<uint32_t>(t));
      for (int head = 0; head < row.q_heads; ++head) {
        norm_rotate(from + row.query(head), q_gain, rotation, dim, rotary, p.eps,
                    q + (t * row.q_heads + head) * dim);
      }
      for (int head = 0; head < row.kv_heads; ++head) {
        const uint64_t at = (static_cast<uint64_t>(head) * p.capacity + p.position + t) * dim;
        float key[kMaxHeadDim];
        norm_rotate(from + row.key(head), k_gain, rotation, dim, rotary, p.eps, key);
        store_row(k_cache + at, key, dim);
        store_row(v_cache + at, from + row.value(head), dim);
      }
    }
  });
}

constexpr NamedKernel kKernels[] = {
    {"rope_append_f32", rope_append<float>},
    {"rope_append_bf16", rope_append<uint16_t>},
};

}  // namespace

KernelList rope_kernels() { return kKernels; }

}  // namespace lily::cpu::LILY_ISA
