// encoder: what the gate's bidirectional encoder needs beside the linear products. Rows of windows
// follow one another; offsets say where each begins. Knows no layer.
#include "kernel.h"

namespace lily {

enum : uint {
  kEncoderThreads = 256,
  kEncoderSimdgroups = kEncoderThreads / kLanes,
  kDim = kEncoderHeadDim,
  kRowsEach = 4,                           // query rows of a simdgroup
  kRows = kEncoderSimdgroups * kRowsEach,  // ... and of a threadgroup
  kKeys = kLanes,                          // keys at a time: a lane a key
  kKeyPitch = kDim + 1                     // lanes read keys at a stride: no bank twice
};

// --- LayerNorm after the residual; a threadgroup takes one row

// The sum over all threads. partial: kEncoderSimdgroups floats that nobody still reads.
inline float sum_of_group(float value, threadgroup float* partial, uint lane, uint simdgroup) {
  value = simd_sum(value);
  if (lane == 0) partial[simdgroup] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  for (uint s = 0; s < kEncoderSimdgroups; ++s) total += partial[s];
  return total;
}

// row = layer_norm(row) * gain + shift, and the same into y. Each thread has written its elements
// of row, whose sum is `sum`, and reads no others. The mean goes first, so that a large one costs
// no digits.
template <class A>
inline void layer_norm(device float* row, device const float* gain, device const float* shift,
                       device A* y, constant EncoderParams& p, float sum,
                       threadgroup float* partial, uint thread_index, uint lane, uint simdgroup) {
  const float mean = sum_of_group(sum, partial, lane, simdgroup) / float(p.width);
  float squares = 0.0f;
  for (uint i = thread_index; i < p.width; i += kEncoderThreads) {
    const float centred = row[i] - mean;
    squares = fma(centred, centred, squares);
  }
  const float variance =
      sum_of_group(squares, partial + kEncoderSimdgroups, lane, simdgroup) / float(p.width);
  const float factor = precise::rsqrt(variance + p.eps);
  for (uint i = thread_index; i < p.width; i += kEncoderThreads) {
    const float value = fma((row[i] - mean) * factor, gain[i], shift[i]);
    row[i] = value;
    y[i] = A(value);
  }
}

// hidden[t] += position_table[positions[t]] + form_table[forms[t]], then the norm.
// positions, forms u32 [T], tables f32 [., H], gain, shift f32 [H], hidden f32 [T, H], y A [T, H]
template <class A>
[[kernel]] void encoder_embed(device const uint* positions [[buffer(0)]],
                              device const uint* forms [[buffer(1)]],
                              device const float* position_table [[buffer(2)]],
                              device const float* form_table [[buffer(3)]],
                              device const float* gain [[buffer(4)]],
                              device const float* shift [[buffer(5)]],
                              device float* hidden [[buffer(6)]], device A* y [[buffer(7)]],
                              constant EncoderParams& p [[buffer(8)]], LILY_PLACE) {
  LILY_THREADGROUP(float, partial, (2 * kEncoderSimdgroups));
  const ulong at = ulong(group.x) * p.width;
  device float* row = hidden + at;
  const ulong position = ulong(positions[group.x]) * p.width;
  const ulong form = ulong(forms[group.x]) * p.width;
  float sum = 0.0f;
  for (uint i = thread_index; i < p.width; i += kEncoderThreads) {
    const float value = row[i] + (position_table[position + i] + form_table[form + i]);
    row[i] = value;
    sum += value;
  }
  layer_norm<A>(row, gain, shift, y + at, p, sum, partial, thread_index, lane, simdgroup);
}

// hidden[t] += bias, then the norm.   bias, gain, shift f32 [H], hidden f32 [T, H], y A [T, H]
template <class A>
[[kernel]] void encoder_norm(device const float* bias [[buffer(0)]],
                             device const float* gain [[buffer(1)]],
                             device const float* shift [[buffer(2)]],
                             device float* hidden [[buffer(3)]], device A* y [[buffer(4)]],
                             constant EncoderParams& p [[buffer(5)]], LILY_PLACE) {
  LILY_THREADGROUP(float, partial, (2 * kEncoderSimdgroups));
  const ulong at = ulong(group.x) * p.width;
  device float* row = hidden + at;
  float sum = 0.0f;
  for (uint i = thread_index; i < p.width; i += kEncoderThreads) {
    const float value = row[i] + bias[i];
    row[i] = value;
    sum += value;
  }
  layer_norm<A>(row, gain, shift, y + at, p, sum, partial, thread_index, lane, simdgroup);
}

// --- Attention: group.x a block of a window's rows, group.y the head, group.z the window

// qkv f32 [T, 3*Q*D], bias f32 [3*Q*D], offsets u32 [W + 1], y A [T, Q*D]
template <class A>
[[kernel]] void encoder_attention(device const float* qkv [[buffer(0)]],
                                  device const float* bias [[buffer(1)]],
                                  device const uint* offsets [[buffer(2)]],
                                  device A* y [[buffer(3)]],
                                  constant EncoderParams& p [[buffer(4)]], LILY_PLACE) {
  LILY_THREADGROUP(float, queries, (kRows * kDim));
  LILY_THREADGROUP(float, keys, (kKeys * kKeyPitch));
  LILY_THREADGROUP(float, values, (kKeys * kDim));
  LILY_THREADGROUP(float, weights, (kRows * kKeys));
  const uint end = offsets[group.z + 1];
  const uint first = offsets[group.z] + group.x * kRows, column = group.y * kDim + lane;
  if (first >= end) return;  // a window shorter than the longest
  const ulong stride = 3ul * p.width;
  for (uint r = simdgroup; r < kRows; r += kEncoderSimdgroups) {
    const ulong row = min(first + r, end - 1) * stride;
    queries[r * kDim + lane] = (qkv[row + column] + bias[column]) * p.scale;
  }
  float highest[kRowsEach], total[kRowsEach], mixed[kRowsEach];
  LILY_UNROLL
  for (uint i = 0; i < kRowsEach; ++i) {
    highest[i] = -3.0e38f, total[i] = 0.0f, mixed[i] = 0.0f;
  }
  const uint mine = simdgroup * kRowsEach;
  for (uint from = offsets[group.z]; from < end; from += kKeys) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = simdgroup; k < kKeys; k += kEncoderSimdgroups) {
      const ulong row = min(from + k, end - 1) * stride;
      const uint key = p.width + column, value = 2 * p.width + column;
      keys[k * kKeyPitch + lane] = qkv[row + key] + bias[key];
      values[k * kDim + lane] = qkv[row + value] + bias[value];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool visible = from + lane < end;
    LILY_UNROLL
    for (uint i = 0; i < kRowsEach; ++i) {
      float score = 0.0f;
      for (uint d = 0; d < kDim; ++d) {
        score = fma(queries[(mine + i) * kDim + d], keys[lane * kKeyPitch + d], score);
      }
      const float top = max(highest[i], simd_max(visible ? score : -3.0e38f));
      const float rescale = exp(highest[i] - top), weight = visible ? exp(score - top) : 0.0f;
      weights[(mine + i) * kKeys + lane] = weight;
      total[i] = fma(total[i], rescale, simd_sum(weight));
      mixed[i] *= rescale;
      highest[i] = top;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < kKeys; ++k) {
      const float value = values[k * kDim + lane];
      LILY_UNROLL
      for (uint i = 0; i < kRowsEach; ++i) {
        mixed[i] = fma(weights[(mine + i) * kKeys + k], value, mixed[i]);
      }
    }
  }
  LILY_UNROLL
  for (uint i = 0; i < kRowsEach; ++i) {
    const uint row = first + mine + i;
    if (row < end) y[ulong(row) * p.width + column] = A(mixed[i] / total[i]);
  }
}

// --- GELU and pooling

// x times the normal distribution, by the fit that src/cpu/encoder.cpp explains.
inline float gelu(float x) {
  const float size = abs(x), z = size * 0.70710678f, t = 1.0f / fma(z, 0.45f, 1.0f);
  float p = -0.0414832723f;
  p = fma(p, t, 0.191088733f);
  p = fma(p, t, -0.301311021f);
  p = fma(p, t, 0.143118985f);
  p = fma(p, t, -0.0227744693f);
  p = fma(p, t, 0.120094901f);
  p = fma(p, t, 0.17522305f);
  p = fma(p, t, 0.22827477f);
  p = fma(p, t, 0.253883012f);
  p = fma(p, t, 0.253885323f);
  return max(x, 0.0f) - 0.5f * size * (p * t * exp(-z * z));
}

// y = gelu(x + bias).   x f32 [T, N], bias f32 [N], y A [T, N]
template <class A>
[[kernel]] void encoder_gelu(device const float* x [[buffer(0)]],
                             device const float* bias [[buffer(1)]], device A* y [[buffer(2)]],
                             constant EncoderParams& p [[buffer(3)]], LILY_PLACE) {
  const ulong at = ulong(group.x) * kEncoderThreads + thread_index;
  if (at < ulong(p.tokens) * p.width) y[at] = A(gelu(x[at] + bias[at % p.width]));
}

// y[w] = mean of the window's rows, then their maximum; a thread takes a column.
// hidden f32 [T, H], offsets u32 [W + 1], y A [W, 2*H]
template <class A>
[[kernel]] void encoder_pool(device const float* hidden [[buffer(0)]],
                             device const uint* offsets [[buffer(1)]], device A* y [[buffer(2)]],
                             constant EncoderParams& p [[buffer(3)]], LILY_PLACE) {
  const uint column = group.x * kEncoderThreads + thread_index;
  if (column >= p.width) return;
  const uint begin = offsets[group.y], end = offsets[group.y + 1];
  float total = 0.0f, top = hidden[ulong(begin) * p.width + column];
  for (uint t = begin; t < end; ++t) {
    const float value = hidden[ulong(t) * p.width + column];
    total += value;
    top = max(top, value);
  }
  const ulong to = ulong(group.y) * 2 * p.width + column;
  y[to] = A(total / float(end - begin));
  y[to + p.width] = A(top);
}

#define LILY_ENCODER(a, A)                                      \
  LILY_KERNEL(encoder_embed_##a, 256, encoder_embed<A>)         \
  LILY_KERNEL(encoder_norm_##a, 256, encoder_norm<A>)           \
  LILY_KERNEL(encoder_attention_##a, 256, encoder_attention<A>) \
  LILY_KERNEL(encoder_gelu_##a, 256, encoder_gelu<A>)           \
  LILY_KERNEL(encoder_pool_##a, 256, encoder_pool<A>)
LILY_ENCODER(bf16, bfloat)
LILY_ENCODER(f16, half)

}  // namespace lily
