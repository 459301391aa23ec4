// Kernels that use each part of the shim, rightly and wrongly, to prove what the runner of
// src/device/fibers computes and reports. No part of Lily.
#include "kernel.h"
#include "probe.h"

namespace lily {

// --- right

// y [kSimdResults, threads]: each simdgroup operation of x [threads].
[[kernel]] void probe_simd(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                           constant ProbeParams& p [[buffer(2)]], LILY_PLACE) {
  const float mine = x[thread_index];
  const uint code = uint(thread_index * 7 % 32);
  const float results[kSimdResults] = {
      simd_sum(mine),
      simd_max(mine),
      simd_min(mine),
      simd_product(mine),
      simd_prefix_inclusive_sum(mine),
      simd_prefix_exclusive_sum(mine),
      simd_shuffle(mine, ushort(31 - lane)),
      simd_shuffle_xor(mine, 5),
      simd_shuffle_up(mine, 3),
      simd_shuffle_down(mine, 3),
      simd_broadcast(mine, 9),
      simd_broadcast_first(mine),
      float(simd_sum(code)),
      float(simd_max(int(code) - 16)),
      float(simd_prefix_exclusive_sum(code)),
      float(uint(simd_vote::vote_t(simd_ballot(lane % 3 == 0))) % 65536u),
      simd_any(lane == 7) ? 1.0f : 0.0f,
      simd_any(lane == 77) ? 1.0f : 0.0f,
      simd_all(lane < 32) ? 1.0f : 0.0f,
      simd_all(lane < 31) ? 1.0f : 0.0f,
      float(simd_sum(half(lane))),
      float(simd_shuffle_xor(bfloat(mine), 1)),
      simd_sum(float2(mine, 1.0f)).x,
      float(as_type<uint>(simd_shuffle(as_type<uint2>(ulong(lane) << 32), 4).y)),
  };
  for (uint i = 0; i < kSimdResults; ++i) y[i * kProbeThreads + thread_index] = results[i];
}
LILY_KERNEL(probe_simd, 128, probe_simd)

#ifndef __NVPTX__  // which has tiles of its own instead (metal/tile.h)
// d [8, 8] = a [8, 8] b^T [8, 8] + c, or b as it is in mode 1; through threadgroup memory.
template <class T>
[[kernel]] void probe_matrix(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                             device const float* c [[buffer(2)]], device float* d [[buffer(3)]],
                             constant ProbeParams& p [[buffer(4)]], LILY_PLACE) {
  LILY_THREADGROUP(float, result, 2 * 8 * 8);
  simdgroup_matrix<T, 8, 8> ma, mb;
  simdgroup_matrix<float, 8, 8> md;
  simdgroup_load(ma, a, 8);
  simdgroup_load(mb, b, 8, ulong2(0, 0), p.mode == 0);
  simdgroup_load(md, c, 8);
  simdgroup_multiply_accumulate(md, ma, mb, md);
  simdgroup_store(md, result, 16, ulong2(8, 0));
  simdgroup_multiply(md, ma, mb);
  simdgroup_store(md, result, 16, ulong2(0, 0));
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < 128; i += kLanes) d[i] = result[i];
}
LILY_KERNEL(probe_matrix_f32, 32, probe_matrix<float>)
LILY_KERNEL(probe_matrix_f16, 32, probe_matrix<half>)
LILY_KERNEL(probe_matrix_bf16, 32, probe_matrix<bfloat>)

// What a kernel would assume of Apple's layout: element 0 of lane l at row l / 4, column l % 4 * 2.
[[kernel]] void probe_layout(device float* y [[buffer(0)]], constant ProbeParams& p [[buffer(1)]],
                             LILY_PLACE) {
  simdgroup_matrix<float, 8, 8> m;
  m.thread_elements() = float2(float(lane * 2), float(lane * 2 + 1));
  simdgroup_store(m, y, 8);
}
LILY_KERNEL(probe_layout, 32, probe_layout)
#endif

// y [groups.x]: the sum of x [threads]; without its barrier in mode 1, and with one that orders
// nothing in mode 2.
[[kernel]] void probe_reduce(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                             constant ProbeParams& p [[buffer(2)]], LILY_PLACE) {
  LILY_THREADGROUP(float, partial, kProbeThreads / kLanes);
  const float sum = simd_sum(x[thread_index]);
  if (lane == 0) partial[simdgroup] = sum;
  if (p.mode == 0) threadgroup_barrier(mem_flags::mem_threadgroup);
  if (p.mode == 2) threadgroup_barrier(mem_flags::mem_none);
  if (thread_index == 0) y[group.x] = partial[0] + partial[1] + partial[2] + partial[3];
}
LILY_KERNEL(probe_reduce, 128, probe_reduce)

// Neighbours swap through threadgroup memory, as halves; without the simdgroup's barrier in mode 1.
[[kernel]] void probe_swap(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                           constant ProbeParams& p [[buffer(2)]], LILY_PLACE) {
  LILY_THREADGROUP(half, shared, kProbeThreads);
  shared[thread_index] = half(x[thread_index]);
  if (p.mode == 0) simdgroup_barrier(mem_flags::mem_threadgroup);
  y[thread_index] = float(shared[thread_index ^ 1]);
}
LILY_KERNEL(probe_swap, 128, probe_swap)

// y [0]: threads counted in threadgroup memory; y [1]: the highest group, by a device atomic.
[[kernel]] void probe_atomics(device atomic_uint* y [[buffer(0)]],
                              constant ProbeParams& p [[buffer(1)]], LILY_PLACE) {
  LILY_THREADGROUP(atomic_uint, counter, 1);
  if (thread_index == 0) atomic_store_explicit(&counter[0], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&counter[0], 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index == 0) {
    const uint count = atomic_load_explicit(&counter[0], memory_order_relaxed);
    atomic_fetch_add_explicit(&y[0], count, memory_order_relaxed);
    atomic_fetch_max_explicit(&y[1], group.x, memory_order_relaxed);
  }
}
LILY_KERNEL(probe_atomics, 128, probe_atomics)

// y [threads]: at which turn each thread came.
[[kernel]] void probe_order(device atomic_uint* next [[buffer(0)]], device uint* y [[buffer(1)]],
                            constant ProbeParams& p [[buffer(2)]], LILY_PLACE) {
  y[thread_index] = atomic_fetch_add_explicit(next, 1u, memory_order_relaxed);
}
LILY_KERNEL(probe_order, 128, probe_order)

// y [count]: functions of x [count].
[[kernel]] void probe_math(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                           constant ProbeParams& p [[buffer(2)]], LILY_PLACE) {
  const uint i = group.x * kProbeThreads + thread_index;
  if (i >= p.count) return;
  const float v = x[i];
  const float results[] = {
      precise::exp(v),
      precise::exp2(v),
      precise::log(abs(v)),
      precise::log2(abs(v)),
      precise::sqrt(abs(v)),
      precise::rsqrt(abs(v)),
      precise::sin(v),
      precise::cos(v),
      precise::tanh(v),
      fast::exp(v),
      fast::exp2(v),
      fast::log(abs(v)),
      fast::log2(abs(v)),
      fast::sqrt(abs(v)),
      fast::rsqrt(abs(v)),
      fast::tanh(v),
      float(bfloat(v)),
      float(half(v)),
      floor(v),
      fma(v, v, 1.0f),
      clamp(v, -1.0f, 1.0f),
      float(popcount(as_type<uint>(v))),
      float(clz(as_type<uint>(v) >> 3)),
      float(mulhi(as_type<uint>(v), 0x10001u) >> 8),
  };
  for (uint r = 0; r < 24; ++r) y[r * p.count + i] = results[r];
}
LILY_KERNEL(probe_math, 128, probe_math)

// --- wrong

// y [threads] = a simd_sum that not all lanes come to (mode 0), that they come to at two places
// (1), or that some come to while others wait at the barrier (2).
[[kernel]] void probe_divergence(device float* y [[buffer(0)]],
                                 constant ProbeParams& p [[buffer(1)]], LILY_PLACE) {
  float sum = 0.0f;
  if (p.mode == 0 && lane < 20) sum = simd_sum(1.0f);
  if (p.mode == 1) {
    if (lane < 20) {
      sum = simd_sum(1.0f);
    } else {
      y[thread_index] = 3.0f;
      sum = 2.0f * simd_sum(3.0f);
    }
  }
  if (p.mode == 2) {
    if (lane < 20) {
      sum = simd_sum(1.0f);
    } else {
      threadgroup_barrier(mem_flags::mem_none);
    }
  }
  y[thread_index] = sum;
}
LILY_KERNEL(probe_divergence, 128, probe_divergence)

// Threads that do not come to a barrier (mode 0), or come to another one (1).
[[kernel]] void probe_barriers(device float* y [[buffer(0)]], constant ProbeParams& p [[buffer(1)]],
                               LILY_PLACE) {
  if (p.mode == 0 && thread_index == 77) return;
  if (p.mode == 1 && simdgroup == 2) {
    threadgroup_barrier(mem_flags::mem_none);
    y[thread_index] = 1.0f;
  } else {
    threadgroup_barrier(mem_flags::mem_none);
    y[thread_index] = 2.0f;
  }
}
LILY_KERNEL(probe_barriers, 128, probe_barriers)

// Modes: 0 none; 1 reads past x; 2 writes past y; 3 writes to x; 4 reads before x; 5 reads
// a float4 of which the last byte is past x.
[[kernel]] void probe_bounds(device float* x [[buffer(0)]], device float* y [[buffer(1)]],
                             constant ProbeParams& p [[buffer(2)]], LILY_PLACE) {
  if (p.mode == 1) y[0] = x[p.count + thread_index];
  if (p.mode == 2) y[p.count + thread_index] = 1.0f;
  if (p.mode == 3) x[thread_index] = 1.0f;
  if (p.mode == 4) y[0] = x[int(thread_index) - 1];
  if (p.mode == 5) {
    const float4 four = *(device const float4*)(x + p.count);
    y[0] = four.x + four.y + four.z + four.w;
  }
}
LILY_KERNEL(probe_bounds, 32, probe_bounds)

// Modes: 0 fits; 1 an array too many; 2 an index past its array; 3 what was never written.
[[kernel]] void probe_memory(device float* y [[buffer(0)]], constant ProbeParams& p [[buffer(1)]],
                             LILY_PLACE) {
  LILY_THREADGROUP(float, most, 12288 - 32);
  most[thread_index] = 1.0f;
  if (p.mode == 1) {
    LILY_THREADGROUP(float, more, 33);
    more[lane] = 2.0f;
  }
  threadgroup float* past = most + p.count;
  if (p.mode == 2) *past = 1.0f;
  y[thread_index] = most[p.mode == 3 ? 4000 + thread_index : thread_index];
}
LILY_KERNEL(probe_memory, 32, probe_memory)

// Modes: 0 a division by zero; 1 an index past a private array; 2 nothing; 3 a misaligned float4;
// 4 a shuffle from lane 40.
[[kernel]] void probe_faults(device float* y [[buffer(0)]], constant ProbeParams& p [[buffer(1)]],
                             LILY_PLACE) {
  float value = 0.0f;
  if (p.mode == 0) value = float(100u / (p.count - p.count));
#ifndef __NVPTX__
  if (p.mode == 1) {
    float mine[4] = {y[0], y[1], y[2], y[3]};
    mine[p.count % 8] = 1.0f;
    value = mine[lane % 4];
  }
#endif
  if (p.mode == 3) {
    const float4 four = *(device const float4*)(y + 1);
    value = four.x + four.y + four.z + four.w;
  }
  if (p.mode == 4) value = simd_shuffle(1.0f, ushort(p.count + 33));
  y[thread_index] = value;
}
LILY_KERNEL(probe_faults, 32, probe_faults)

#ifndef __NVPTX__
// A private array too large for any stack.
[[kernel]] void probe_stack(device float* y [[buffer(0)]], constant ProbeParams& p [[buffer(1)]],
                            LILY_PLACE) {
  float mine[40000];
  for (uint i = 0; i < 40000; ++i) mine[i] = y[i % 32];
  float value = 0.0f;
  for (uint i = 0; i < 40000; ++i) value += mine[(i * 7 + p.count) % 40000];
  y[thread_index] = value;
}
LILY_KERNEL(probe_stack, 32, probe_stack)
#endif

// For measurements: rows of a matrix w [rows, count] times x [count], one simdgroup a row.
[[kernel]] void probe_gemv(device const bfloat* w [[buffer(0)]],
                           device const float* x [[buffer(1)]], device float* y [[buffer(2)]],
                           constant ProbeParams& p [[buffer(3)]], LILY_PLACE) {
  const ulong row = ulong(group.x) * (kProbeThreads / kLanes) + simdgroup;
  float sum = 0.0f;
  for (uint k = lane * 4; k < p.count; k += 4 * kLanes) {
    const float4 here = *(device const float4*)(x + k);
    const bfloat4 weights = *(device const bfloat4*)(w + row * p.count + k);
    LILY_UNROLL for (uint i = 0; i < 4; ++i) sum += here[i] * float(weights[i]);
  }
  sum = simd_sum(sum);
  if (lane == 0) y[row] = sum;
}
LILY_KERNEL(probe_gemv, 128, probe_gemv)

}  // namespace lily
