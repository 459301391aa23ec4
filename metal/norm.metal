// norm: RMSNorm of rows of the residual stream (prefill; decode folds it into what reads the row).
// A threadgroup takes one row. Knows no layer.
#include "kernel.h"

namespace lily {

enum : uint { kNormThreads = 256, kNormSimdgroups = kNormThreads / kLanes };

// y[t] = x[t] * rsqrt(mean(x[t]^2) + eps) * gain.   x f32 [T, H], gain f32 [H], y A [T, H]
template <class A>
[[kernel]] void norm_rms(device const float* x [[buffer(0)]],
                         device const float* gain [[buffer(1)]], device A* y [[buffer(2)]],
                         constant NormRmsParams& p [[buffer(3)]], LILY_PLACE) {
  LILY_THREADGROUP(float, partial, kNormSimdgroups);
  const ulong row = ulong(group.x) * p.hidden;
  float squares = 0.0f;
  for (uint i = thread_index; i < p.hidden; i += kNormThreads) {
    const float value = x[row + i];
    squares = fma(value, value, squares);
  }
  squares = simd_sum(squares);
  if (lane == 0) partial[simdgroup] = squares;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  for (uint s = 0; s < kNormSimdgroups; ++s) total += partial[s];
  const float factor = precise::rsqrt(total / float(p.hidden) + p.eps);
  for (uint i = thread_index; i < p.hidden; i += kNormThreads) {
    y[row + i] = A(x[row + i] * factor * gain[i]);
  }
}

LILY_KERNEL(norm_rms_f32, 256, norm_rms<float>)
LILY_KERNEL(norm_rms_bf16, 256, norm_rms<bfloat>)
LILY_KERNEL(norm_rms_f16, 256, norm_rms<half>)

}  // namespace lily
