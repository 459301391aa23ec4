// delta: causal convolution and the gated delta rule (Gated DeltaNet, arXiv 2412.06464), one step
// (decode) or a chunk (prefill). The state and every sum are fp32. Knows no layer.
#include "activation.h"
#include "kernel.h"

namespace lily {

enum : uint { kMaxDeltaDim = 256 };  // of keys and values

// Where the parts of a projection row lie: q Hk*Dk | k Hk*Dk | v Hv*Dv | z Hv*Dv | b Hv | a Hv.
struct DeltaRow {
  uint key_width, value_width, value_heads;
  uint channels() const thread { return 2 * key_width + value_width; }
  uint beta(uint head) const thread { return channels() + value_width + head; }
  uint alpha(uint head) const thread { return beta(head) + value_heads; }
  uint stride() const thread { return alpha(value_heads); }
};
inline DeltaRow delta_row(constant DeltaParams& p) {
  return {p.key_heads * p.key_dim, p.value_heads * p.value_dim, p.value_heads};
}

// exp(g) with g = -exp(A_log) * softplus(a + dt_bias).
inline float decay_factor(float a, float dt_bias, float decay_rate) {
  const float x = a + dt_bias;
  const float softplus = x > 20.0f ? x : log(1.0f + exp(x));
  return exp(decay_rate * softplus);
}

// silu of the convolution of channel c at position `position`, whose own input is `input`. Inputs
// before the timeline begins are zero.
inline float convolve(float input, device const float* ring, device const float* weight, uint c,
                      uint channels, uint position) {
  const float4 taps = *(device const float4*)(weight + c * kConvWidth);
  float total = taps.w * input;
  LILY_UNROLL
  for (uint back = 1; back < kConvWidth; ++back) {
    if (back > position) continue;
    const uint row = (position - back) % kConvWidth;
    total = fma(taps[kConvWidth - 1 - back], ring[ulong(row) * channels + c], total);
  }
  return silu(total);
}

// --- Decode. A threadgroup takes a value head: 16 simdgroups, whose lanes own kLaneKeys * key
// columns; rows of the state are dealt out to the simdgroups.

enum : uint { kStepThreads = 512, kStepSimdgroups = kStepThreads / kLanes };

// Rows of a head's state, as a simdgroup holds them: VECTORS float4 a lane and row, for keys of up
// to 128 * VECTORS.
template <uint VECTORS>
struct StateRows {
  enum : uint { kRows = 8 / VECTORS };
  float4 s[kRows][VECTORS];

  void load(device const float* state, uint first, uint key_dim, uint value_dim, uint lane) thread {
    LILY_UNROLL
    for (uint r = 0; r < kRows; ++r) {
      LILY_UNROLL
      for (uint n = 0; n < VECTORS; ++n) {
        const uint column = (n * kLanes + lane) * 4;
        s[r][n] = float4(0.0f);
        if (first + r < value_dim && column < key_dim) {
          s[r][n] = *(device const float4*)(state + (first + r) * key_dim + column);
        }
      }
    }
  }
};

// What a step does with a head's state, once q, k and v are there.
struct StepFactors {
  float decay, beta, q_scale, k_scale, kq;
};

// The step over the rows of one simdgroup, the first of them loaded. Both products of the old state
// are formed in one pass, because S q after the update is decay (S q) + delta (k . q).
template <uint VECTORS>
inline void step_rows(thread StateRows<VECTORS>& rows, device float* state,
                      threadgroup const float* q, threadgroup const float* k,
                      threadgroup const float* v, threadgroup float* out, uint key_dim,
                      uint value_dim, StepFactors f, uint lane, uint simdgroup) {
  enum : uint { kRows = StateRows<VECTORS>::kRows };
  float4 query[VECTORS], key[VECTORS];
  LILY_UNROLL
  for (uint n = 0; n < VECTORS; ++n) {
    const uint column = (n * kLanes + lane) * 4;
    query[n] = *(threadgroup const float4*)(q + column) * f.q_scale;
    key[n] = *(threadgroup const float4*)(k + column) * f.k_scale;
  }
  for (uint first = simdgroup * kRows; first < value_dim; first += kStepSimdgroups * kRows) {
    if (first != simdgroup * kRows) rows.load(state, first, key_dim, value_dim, lane);
    LILY_UNROLL
    for (uint r = 0; r < kRows; ++r) {
      float sk = 0.0f, sq = 0.0f;
      LILY_UNROLL
      for (uint n = 0; n < VECTORS; ++n) {
        sk += dot(rows.s[r][n], key[n]), sq += dot(rows.s[r][n], query[n]);
      }
      sk = simd_sum(sk);
      sq = simd_sum(sq);
      if (first + r >= value_dim) continue;
      const float delta = f.beta * (v[first + r] - f.decay * sk);
      if (lane == 0) out[first + r] = fma(f.decay, sq, delta * f.kq);
      LILY_UNROLL
      for (uint n = 0; n < VECTORS; ++n) {
        const uint column = (n * kLanes + lane) * 4;
        if (column >= key_dim) continue;
        *(device float4*)(state + (first + r) * key_dim + column) =
            rows.s[r][n] * f.decay + key[n] * delta;
      }
    }
  }
}

// The convolved inputs of a head: q, k and v at multiples of kMaxDeltaDim. Heads that share a key
// head all form its q and k; the first of them records the inputs, in the ring's row of this
// position, which nobody reads now.
inline void convolve_head(device const float* proj, device const float* conv_weight,
                          device float* conv_ring, constant DeltaParams& p, DeltaRow row, uint head,
                          uint position, threadgroup float* convolved, uint thread_index) {
  const uint share = p.value_heads / p.key_heads, key_head = head / share;
  const uint channels = row.channels();
  for (uint i = thread_index; i < 3 * kMaxDeltaDim; i += kStepThreads) {
    const uint part = i / kMaxDeltaDim, within = i % kMaxDeltaDim;
    const uint dim = part == 2 ? p.value_dim : p.key_dim;
    float value = 0.0f;
    if (within < dim) {
      const uint c = part == 2 ? 2 * row.key_width + head * dim + within
                               : part * row.key_width + key_head * dim + within;
      const float input = proj[c];
      value = convolve(input, conv_ring, conv_weight, c, channels, position);
      if (part == 2 || head % share == 0) {
        conv_ring[ulong(position % kConvWidth) * channels + c] = input;
      }
    }
    convolved[i] = value;
  }
}

// y [1, Hv*Dv] f32; shapes of the rest at DeltaTensors in ops.h. key_dim a multiple of 4, up to
// 256. The state is under way while the convolution is formed.
template <uint VECTORS>
[[kernel]] void delta_step(
    device const Cursor* cursor [[buffer(0)]], device const float* proj [[buffer(1)]],
    device const float* conv_weight [[buffer(2)]], device const float* decay_rate [[buffer(3)]],
    device const float* dt_bias [[buffer(4)]], device const float* gain [[buffer(5)]],
    device float* conv_ring [[buffer(6)]], device float* state [[buffer(7)]],
    device float* y [[buffer(8)]], constant DeltaParams& p [[buffer(9)]], LILY_PLACE) {
  LILY_THREADGROUP(float, convolved, 3 * kMaxDeltaDim);  // q, k, v
  LILY_THREADGROUP(float, out, kMaxDeltaDim);
  const DeltaRow row = delta_row(p);
  const uint head = group.x;
  device float* mine = state + ulong(head) * p.value_dim * p.key_dim;
  StateRows<VECTORS> rows;
  rows.load(mine, simdgroup * StateRows<VECTORS>::kRows, p.key_dim, p.value_dim, lane);
  const float decay = decay_factor(proj[row.alpha(head)], dt_bias[head], decay_rate[head]);
  const float beta = sigmoid(proj[row.beta(head)]);
  convolve_head(proj, conv_weight, conv_ring, p, row, head, cursor->position, convolved,
                thread_index);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup const float* q = convolved;
  threadgroup const float* k = convolved + kMaxDeltaDim;
  float qq = 0.0f, kk = 0.0f, kq = 0.0f;
  for (uint i = lane; i < p.key_dim; i += kLanes) {
    qq = fma(q[i], q[i], qq), kk = fma(k[i], k[i], kk), kq = fma(k[i], q[i], kq);
  }
  // The 1e-6 is the reference's own constant, not the norm's eps.
  const float q_scale = precise::rsqrt(simd_sum(qq) + 1e-6f) * precise::rsqrt(float(p.key_dim));
  const float k_scale = precise::rsqrt(simd_sum(kk) + 1e-6f);
  const StepFactors factors{decay, beta, q_scale, k_scale, simd_sum(kq) * q_scale * k_scale};
  step_rows<VECTORS>(rows, mine, q, k, convolved + 2 * kMaxDeltaDim, out, p.key_dim, p.value_dim,
                     factors, lane, simdgroup);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float squares = 0.0f;
  for (uint i = lane; i < p.value_dim; i += kLanes) squares = fma(out[i], out[i], squares);
  const float factor = precise::rsqrt(simd_sum(squares) / float(p.value_dim) + p.eps);
  for (uint i = thread_index; i < p.value_dim; i += kStepThreads) {
    const uint column = head * p.value_dim + i;
    y[column] = out[i] * factor * gain[i] * silu(proj[row.channels() + column]);
  }
}
LILY_KERNEL(delta_step_f32_v1, 512, delta_step<1>)
LILY_KERNEL(delta_step_f32_v2, 512, delta_step<2>)

// --- Prefill: convolution, then the recurrence, then the gated norm

enum : uint {
  kConvThreads = 256,
  kConvSimdgroups = kConvThreads / kLanes,
  kConvTokens = 8,  // of a simdgroup: each input is read once and serves four tokens
  kLaneChannels = kMaxDeltaDim / kLanes
};

// The input of channel c at row t of this call; before the timeline begins it is zero.
inline float conv_input(device const float* proj, ulong stride, device const float* ring, uint c,
                        uint channels, uint position, int t) {
  if (t >= 0) return proj[ulong(t) * stride + c];
  const int place = int(position) + t;
  return place >= 0 ? ring[ulong(uint(place) % kConvWidth) * channels + c] : 0.0f;
}

// A simdgroup takes a head (of q, k or v) of kConvTokens tokens.   qkv f32 [T, C], gates f32 [T, 2,
// Hv]
[[kernel]] void delta_conv(device const float* proj [[buffer(0)]],
                           device const float* conv_weight [[buffer(1)]],
                           device const float* decay_rate [[buffer(2)]],
                           device const float* dt_bias [[buffer(3)]],
                           device const float* conv_ring [[buffer(4)]],
                           device float* qkv [[buffer(5)]], device float* gates [[buffer(6)]],
                           constant DeltaParams& p [[buffer(7)]], LILY_PLACE) {
  const DeltaRow row = delta_row(p);
  const uint begin = group.y * kConvTokens, end = min(begin + kConvTokens, p.tokens);
  const uint head = group.x * kConvSimdgroups + simdgroup;
  if (head >= 2 * p.key_heads + p.value_heads) return;
  const bool is_key = head < 2 * p.key_heads;
  const uint dim = is_key ? p.key_dim : p.value_dim, channels = row.channels();
  const uint first = is_key ? head * dim : 2 * row.key_width + (head - 2 * p.key_heads) * dim;
  const ulong stride = row.stride();
  float4 taps[kLaneChannels], window[kLaneChannels];  // inputs at t - 3, t - 2, t - 1, t
  LILY_UNROLL
  for (uint n = 0; n < kLaneChannels; ++n) {
    const uint c = first + n * kLanes + lane;
    taps[n] = window[n] = float4(0.0f);
    if (n * kLanes + lane >= dim) continue;
    taps[n] = *(device const float4*)(conv_weight + c * kConvWidth);
    LILY_UNROLL
    for (int back = 1; back < int(kConvWidth); ++back) {
      window[n][kConvWidth - back] =
          conv_input(proj, stride, conv_ring, c, channels, p.position, int(begin) - back);
    }
  }
  for (uint t = begin; t < end; ++t) {
    float values[kLaneChannels], squares = 0.0f;
    LILY_UNROLL
    for (uint n = 0; n < kLaneChannels; ++n) {
      const uint i = n * kLanes + lane;
      const float input = i < dim ? proj[ulong(t) * stride + first + i] : 0.0f;
      window[n] = float4(window[n].y, window[n].z, window[n].w, input);
      values[n] = silu(dot(window[n], taps[n]));
      squares = fma(values[n], values[n], squares);
    }
    squares = simd_sum(squares);
    float factor = 1.0f;
    if (is_key) {
      factor = precise::rsqrt(squares + 1e-6f);
      if (head < p.key_heads) factor *= precise::rsqrt(float(dim));
    }
    LILY_UNROLL
    for (uint n = 0; n < kLaneChannels; ++n) {
      const uint i = n * kLanes + lane;
      if (i < dim) qkv[ulong(t) * channels + first + i] = values[n] * factor;
    }
  }
  const uint t = begin + lane;  // a lane forms one token's gates
  if (is_key || t >= end) return;
  const uint value_head = head - 2 * p.key_heads;
  device const float* inputs = proj + ulong(t) * stride;
  device float* gate = gates + ulong(t) * 2 * p.value_heads + value_head;
  gate[0] =
      decay_factor(inputs[row.alpha(value_head)], dt_bias[value_head], decay_rate[value_head]);
  gate[p.value_heads] = sigmoid(inputs[row.beta(value_head)]);
}
LILY_KERNEL(delta_conv_f32, 256, delta_conv)

// The last inputs of the chunk into the ring. A launch of its own, because delta_conv's groups
// still read what it overwrites.
[[kernel]] void delta_carry(device const float* proj [[buffer(0)]],
                            device float* conv_ring [[buffer(1)]],
                            constant DeltaParams& p [[buffer(2)]], LILY_PLACE) {
  const DeltaRow row = delta_row(p);
  const uint c = group.x * kConvThreads + thread_index, channels = row.channels();
  if (c >= channels) return;
  for (uint back = min(p.tokens, uint(kConvWidth)); back > 0; --back) {
    const uint t = p.tokens - back;
    conv_ring[ulong((p.position + t) % kConvWidth) * channels + c] =
        proj[ulong(t) * row.stride() + c];
  }
}
LILY_KERNEL(delta_carry_f32, 256, delta_carry)

enum : uint {
  kScanThreads = 128,
  kScanLanesPerRow = 4,                        // lanes that share a row of the state
  kScanRows = kScanThreads / kScanLanesPerRow  // of a threadgroup: 32
};

// What a block of tokens needs of one head, in threadgroup memory.
template <uint KEY_DIM, uint BLOCK>
struct ScanMemory {
  threadgroup float* keys;     // [BLOCK, KEY_DIM]
  threadgroup float* queries;  // [BLOCK, KEY_DIM]
  threadgroup float* values;   // [BLOCK, kScanRows]
  threadgroup float* gates;    // [BLOCK, 4]: decay, beta, k . q
};

template <uint KEY_DIM, uint BLOCK>
inline void stage_block(device const float* qkv, device const float* gates, constant DeltaParams& p,
                        DeltaRow row, uint head, uint begin, uint count, uint first_value,
                        ScanMemory<KEY_DIM, BLOCK> memory, uint thread_index) {
  const uint channels = row.channels(), key_head = head / (p.value_heads / p.key_heads);
  for (uint i = thread_index; i < count * (KEY_DIM / 4); i += kScanThreads) {
    const uint t = i / (KEY_DIM / 4), column = i % (KEY_DIM / 4) * 4;
    device const float* from = qkv + ulong(begin + t) * channels + key_head * KEY_DIM + column;
    *(threadgroup float4*)(memory.queries + t * KEY_DIM + column) = *(device const float4*)from;
    *(threadgroup float4*)(memory.keys + t * KEY_DIM + column) =
        *(device const float4*)(from + row.key_width);
  }
  for (uint i = thread_index; i < count * kScanRows; i += kScanThreads) {
    const uint value = min(first_value + i % kScanRows, p.value_dim - 1);
    memory.values[i] = qkv[ulong(begin + i / kScanRows) * channels + 2 * row.key_width +
                           head * p.value_dim + value];
  }
  if (thread_index < count) {
    device const float* gate = gates + ulong(begin + thread_index) * 2 * p.value_heads + head;
    memory.gates[thread_index * 4] = gate[0];
    memory.gates[thread_index * 4 + 1] = gate[p.value_heads];
  }
}

// k . q of each token of the block, for all rows.
template <uint KEY_DIM, uint BLOCK>
inline void key_query_products(ScanMemory<KEY_DIM, BLOCK> memory, uint count, uint lane,
                               uint simdgroup) {
  for (uint t = simdgroup; t < count; t += kScanThreads / kLanes) {
    float product = 0.0f;
    for (uint i = lane; i < KEY_DIM; i += kLanes) {
      product = fma(memory.keys[t * KEY_DIM + i], memory.queries[t * KEY_DIM + i], product);
    }
    product = simd_sum(product);
    if (lane == 0) memory.gates[t * 4 + 2] = product;
  }
}

inline float sum_of(float4 x) { return (x.x + x.y) + (x.z + x.w); }

// The recurrence over a chunk: a threadgroup takes kScanRows rows of a head's state and keeps them
// in registers; a row's keys are dealt to 4 lanes, so that a sum crosses two steps of shuffles. o
// replaces v in qkv. group.x: rows, group.y: head.   KEYS: keys a lane; key_dim = 4 * KEYS.
template <uint KEYS, uint BLOCK>
[[kernel]] void delta_chunk(device float* qkv [[buffer(0)]],
                            device const float* gates [[buffer(1)]],
                            device float* state [[buffer(2)]],
                            constant DeltaParams& p [[buffer(3)]], LILY_PLACE) {
  enum : uint { kKeyDim = KEYS * kScanLanesPerRow };
  LILY_THREADGROUP(float, keys, BLOCK* kKeyDim);
  LILY_THREADGROUP(float, queries, BLOCK* kKeyDim);
  LILY_THREADGROUP(float, values, BLOCK* kScanRows);
  LILY_THREADGROUP(float, outputs, BLOCK* kScanRows);
  LILY_THREADGROUP(float, block_gates, BLOCK * 4);
  const ScanMemory<kKeyDim, BLOCK> memory{keys, queries, values, block_gates};
  const DeltaRow row = delta_row(p);
  const uint head = group.y, part = thread_index % kScanLanesPerRow;
  const uint first = group.x * kScanRows, mine_row = thread_index / kScanLanesPerRow;
  const bool there = first + mine_row < p.value_dim;
  device float* mine =
      state + (ulong(head) * p.value_dim + (there ? first + mine_row : 0)) * kKeyDim;
  // Lane `part` of a row owns the float4s part, part + 4, ...: neighbours read neighbouring memory.
  float4 s[KEYS / 4];
  LILY_UNROLL
  for (uint n = 0; n < KEYS / 4; ++n) {
    s[n] = *(device const float4*)(mine + (n * kScanLanesPerRow + part) * 4);
  }
  for (uint begin = 0; begin < p.tokens; begin += BLOCK) {
    const uint count = min(p.tokens - begin, BLOCK);
    stage_block(qkv, gates, p, row, head, begin, count, first, memory, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    key_query_products(memory, count, lane, simdgroup);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint t = 0; t < count; ++t) {
      const float decay = block_gates[t * 4], beta = block_gates[t * 4 + 1];
      float4 sk = float4(0.0f), sq = float4(0.0f), key[KEYS / 4];
      LILY_UNROLL
      for (uint n = 0; n < KEYS / 4; ++n) {
        const uint column = t * kKeyDim + (n * kScanLanesPerRow + part) * 4;
        key[n] = *(threadgroup const float4*)(keys + column);
        sk = fma(s[n], key[n], sk);
        sq = fma(s[n], *(threadgroup const float4*)(queries + column), sq);
      }
      float with_key = sum_of(sk), with_query = sum_of(sq);
      LILY_UNROLL
      for (ushort apart = 1; apart < kScanLanesPerRow; apart *= 2) {
        with_key += simd_shuffle_xor(with_key, apart);
        with_query += simd_shuffle_xor(with_query, apart);
      }
      const float delta = beta * (values[t * kScanRows + mine_row] - decay * with_key);
      LILY_UNROLL
      for (uint n = 0; n < KEYS / 4; ++n) s[n] = fma(key[n], float4(delta), s[n] * decay);
      if (part == 0) {
        outputs[t * kScanRows + mine_row] = fma(decay, with_query, delta * block_gates[t * 4 + 2]);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = thread_index; i < count * kScanRows; i += kScanThreads) {
      const uint value = first + i % kScanRows;
      if (value >= p.value_dim) continue;
      qkv[ulong(begin + i / kScanRows) * row.channels() + 2 * row.key_width + head * p.value_dim +
          value] = outputs[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (!there) return;
  LILY_UNROLL
  for (uint n = 0; n < KEYS / 4; ++n) {
    *(device float4*)(mine + (n * kScanLanesPerRow + part) * 4) = s[n];
  }
}
LILY_KERNEL(delta_chunk_f32_k16, 128, delta_chunk<4, 16>)
LILY_KERNEL(delta_chunk_f32_k32, 128, delta_chunk<8, 16>)
LILY_KERNEL(delta_chunk_f32_k64, 128, delta_chunk<16, 16>)
LILY_KERNEL(delta_chunk_f32_k128, 128, delta_chunk<32, 16>)
LILY_KERNEL(delta_chunk_f32_k256, 128, delta_chunk<64, 8>)

// y = rms_norm(o) * gain * silu(z), o standing where v stood. A simdgroup takes a head of a token.
// y A [T, Hv*Dv]
template <class A>
[[kernel]] void delta_norm(device const float* qkv [[buffer(0)]],
                           device const float* proj [[buffer(1)]],
                           device const float* gain [[buffer(2)]], device A* y [[buffer(3)]],
                           constant DeltaParams& p [[buffer(4)]], LILY_PLACE) {
  const DeltaRow row = delta_row(p);
  const uint t = group.y, head = group.x * kConvSimdgroups + simdgroup;
  if (head >= p.value_heads) return;
  const uint first = head * p.value_dim, channels = row.channels();
  device const float* o = qkv + ulong(t) * channels + 2 * row.key_width + first;
  device const float* z = proj + ulong(t) * row.stride() + channels + first;
  float squares = 0.0f;
  for (uint i = lane; i < p.value_dim; i += kLanes) squares = fma(o[i], o[i], squares);
  const float factor = precise::rsqrt(simd_sum(squares) / float(p.value_dim) + p.eps);
  for (uint i = lane; i < p.value_dim; i += kLanes) {
    y[ulong(t) * row.value_width + first + i] = A(o[i] * factor * gain[i] * silu(z[i]));
  }
}
LILY_KERNEL(delta_norm_f32, 256, delta_norm<float>)
LILY_KERNEL(delta_norm_bf16, 256, delta_norm<bfloat>)
LILY_KERNEL(delta_norm_f16, 256, delta_norm<half>)

}  // namespace lily
