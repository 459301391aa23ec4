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

// --- Decode. A threadgroup takes a value head. Four lanes share a row of its state, so that sums
// over keys are formed in registers but for the last two additions.

enum : uint { kStepThreads = 512, kStepSimdgroups = kStepThreads / kLanes, kRowLanes = 4 };

// DIM: keys and values of a head at most.
template <uint DIM>
struct DeltaStep {
  enum : uint {
    kVectors = DIM / (4 * kRowLanes),           // float4 of a row on a lane
    kRowsAtOnce = kStepThreads / kRowLanes,     // of the threadgroup
    kInputs = (3 * DIM - 1) / kStepThreads + 1  // channels of a thread
  };
};

// A lane's share of a row of the state.
template <uint DIM>
struct StateRow {
  enum : uint { kVectors = DeltaStep<DIM>::kVectors };
  float4 s[kVectors];

  void load(device const float* row, uint key_dim, uint part) thread {
    LILY_UNROLL
    for (uint n = 0; n < kVectors; ++n) {
      const uint column = (n * kRowLanes + part) * 4;
      s[n] = column < key_dim ? *(device const float4*)(row + column) : float4(0.0f);
    }
  }
  void store(device float* row, threadgroup const float* k, float decay, float delta, uint key_dim,
             uint part) thread const {
    LILY_UNROLL
    for (uint n = 0; n < kVectors; ++n) {
      const uint column = (n * kRowLanes + part) * 4;
      if (column >= key_dim) continue;
      *(device float4*)(row + column) =
          s[n] * decay + *(threadgroup const float4*)(k + column) * delta;
    }
  }
  // The row times k (x) and q (y), on all of its lanes.
  float2 times(threadgroup const float* k, threadgroup const float* q, uint part) thread const {
    float4 sk = float4(0.0f), sq = float4(0.0f);
    LILY_UNROLL
    for (uint n = 0; n < kVectors; ++n) {
      const uint column = (n * kRowLanes + part) * 4;
      sk = fma(s[n], *(threadgroup const float4*)(k + column), sk);
      sq = fma(s[n], *(threadgroup const float4*)(q + column), sq);
    }
    float2 sums = float2((sk.x + sk.y) + (sk.z + sk.w), (sq.x + sq.y) + (sq.z + sq.w));
    LILY_UNROLL
    for (ushort apart = 1; apart < kRowLanes; apart *= 2) {
      sums += float2(simd_shuffle_xor(sums.x, apart), simd_shuffle_xor(sums.y, apart));
    }
    return sums;
  }
};

// Lengths of q and k, and their product, once all of q and k are there.
struct StepFactors {
  float q_scale, k_scale, kq;
};

// q and k are DIM long, zero past their ends. The 1e-6 is the reference's own constant, not the
// norm's eps.
template <uint DIM>
inline StepFactors step_factors(threadgroup const float* q, threadgroup const float* k,
                                float by_dim, uint lane) {
  float qq = 0.0f, kk = 0.0f, kq = 0.0f;
  LILY_UNROLL
  for (uint n = 0; n < DIM; n += kLanes) {
    const float of_q = q[n + lane], of_k = k[n + lane];
    qq = fma(of_q, of_q, qq), kk = fma(of_k, of_k, kk), kq = fma(of_k, of_q, kq);
  }
  const float q_scale = precise::rsqrt(simd_sum(qq) + 1e-6f) * by_dim;
  const float k_scale = precise::rsqrt(simd_sum(kk) + 1e-6f);
  return {q_scale, k_scale, simd_sum(kq) * q_scale * k_scale};
}

// The channels of q, k and v that a thread convolves. Heads that share a key head all form its q
// and k; the first of them records the inputs, in the ring's row of this position, which nobody
// reads now.
template <uint DIM>
struct StepInputs {
  enum : uint { kInputs = DeltaStep<DIM>::kInputs };
  uint channel[kInputs];
  bool there[kInputs], records[kInputs];
  float4 taps[kInputs];
  float window[kInputs][kConvWidth];  // the input of this position, and of those before it

  // Taps, and inputs of earlier positions, which earlier steps wrote; before the timeline begins
  // they are zero.
  void begin(device const float* conv_weight, device const float* ring, constant DeltaParams& p,
             DeltaRow row, uint head, uint position, uint thread_index) thread {
    const uint share = p.value_heads / p.key_heads, key_head = head / share;
    LILY_UNROLL
    for (uint n = 0; n < kInputs; ++n) {
      const uint i = n * kStepThreads + thread_index, part = i / DIM, within = i % DIM;
      const uint dim = part == 2 ? p.value_dim : p.key_dim;
      channel[n] = part == 2 ? 2 * row.key_width + head * dim + within
                             : part * row.key_width + key_head * dim + within;
      there[n] = part < 3 && within < dim;
      records[n] = there[n] && (part == 2 || head % share == 0);
      taps[n] = float4(0.0f);
      if (there[n]) taps[n] = *(device const float4*)(conv_weight + channel[n] * kConvWidth);
      LILY_UNROLL
      for (uint back = 1; back < kConvWidth; ++back) {
        window[n][back] = 0.0f;
        if (!there[n] || back > position) continue;
        const uint at = (position - back) % kConvWidth;
        window[n][back] = ring[ulong(at) * row.channels() + channel[n]];
      }
    }
  }
  void load(device const float* proj) thread {
    LILY_UNROLL
    for (uint n = 0; n < kInputs; ++n) window[n][0] = there[n] ? proj[channel[n]] : 0.0f;
  }
  // convolved: q, k and v, each of DIM floats, zero past their ends.
  void convolve(device float* ring, uint channels, uint position, threadgroup float* convolved,
                uint thread_index) thread const {
    LILY_UNROLL
    for (uint n = 0; n < kInputs; ++n) {
      const uint i = n * kStepThreads + thread_index;
      if (i >= 3 * DIM) continue;
      float total = 0.0f;
      LILY_UNROLL
      for (uint back = 0; back < kConvWidth; ++back) {
        total = fma(taps[n][kConvWidth - 1 - back], window[n][back], total);
      }
      convolved[i] = silu(total);
      if (records[n]) ring[ulong(position % kConvWidth) * channels + channel[n]] = window[n][0];
    }
  }
};

// y [1, Hv*Dv] f32; shapes of the rest at DeltaTensors in ops.h. key_dim a multiple of 4. The state
// is under way before the step's own inputs are there. Both products of the old state are formed in
// one pass, because S q after the update is decay (S q) + delta (k . q). A step moves its cursor
// last, so that it can be read early. Both states may be one: a lane writes what it alone has read.
template <uint DIM>
[[kernel]] void delta_step(
    device const Cursor* cursor [[buffer(0)]], device const float* proj [[buffer(1)]],
    device const float* conv_weight [[buffer(2)]], device const float* decay_rate [[buffer(3)]],
    device const float* dt_bias [[buffer(4)]], device const float* gain [[buffer(5)]],
    device float* conv_ring [[buffer(6)]], device const float* state [[buffer(7)]],
    device float* next_state [[buffer(8)]], device float* y [[buffer(9)]],
    constant DeltaParams& p [[buffer(10)]], LILY_PLACE) {
  LILY_THREADGROUP(Sixteen, input_memory, 3 * DIM / 4);
  LILY_THREADGROUP(float, out, DIM);
  LILY_THREADGROUP(float, gates, 2);  // decay, beta
  threadgroup float* convolved = (threadgroup float*)input_memory;
  const DeltaRow row = delta_row(p);
  const uint head = group.x, position = cursor->position;
  // What earlier steps wrote is as constant as weights.
  StepInputs<DIM> inputs;
  inputs.begin(conv_weight, conv_ring, p, row, head, position, thread_index);
  const ulong mine = ulong(head) * p.value_dim * p.key_dim;
  const uint part = thread_index % kRowLanes, first = thread_index / kRowLanes;
  StateRow<DIM> state_row;
  state_row.load(state + mine + first * p.key_dim, first < p.value_dim ? p.key_dim : 0, part);
  // The last threads, which convolve least, form the gates and write y.
  const uint i = thread_index - (kStepThreads - DIM), column = head * p.value_dim + i;
  const bool writes = thread_index >= kStepThreads - DIM && i < p.value_dim;
  const float own_gain = writes ? gain[i] : 0.0f;
  const float rate = decay_rate[head], bias = dt_bias[head];
  LILY_WAIT_FOR_STEP();

  inputs.load(proj);
  const float z = writes ? proj[row.channels() + column] : 0.0f;
  if (simdgroup == kStepSimdgroups - 1) {
    const float alpha = proj[row.alpha(head)], beta = proj[row.beta(head)];
    const float decay = decay_factor(alpha, bias, rate), keen = sigmoid(beta);
    if (lane == 0) gates[0] = decay, gates[1] = keen;
  }
  inputs.convolve(conv_ring, row.channels(), position, convolved, thread_index);
  const float gated = writes ? own_gain * silu(z) : 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);

  threadgroup const float* q = convolved;
  threadgroup const float* k = convolved + DIM;
  threadgroup const float* v = convolved + 2 * DIM;
  const StepFactors f = step_factors<DIM>(q, k, precise::rsqrt(float(p.key_dim)), lane);
  const float decay = gates[0];
  // All lanes of a simdgroup go round together: rows past the end are rows of zeros.
  const uint rounds = (p.value_dim + DeltaStep<DIM>::kRowsAtOnce - 1) / DeltaStep<DIM>::kRowsAtOnce;
  for (uint round = 0; round < rounds; ++round) {
    const uint r = round * DeltaStep<DIM>::kRowsAtOnce + first;
    const bool there = r < p.value_dim;
    if (round > 0) state_row.load(state + mine + r * p.key_dim, there ? p.key_dim : 0, part);
    const float2 products = state_row.times(k, q, part);
    if (!there) continue;
    const float delta = gates[1] * (v[r] - decay * (products.x * f.k_scale));
    if (part == 0) out[r] = fma(decay, products.y * f.q_scale, delta * f.kq);
    state_row.store(next_state + mine + r * p.key_dim, k, decay, delta * f.k_scale, p.key_dim,
                    part);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float squares = 0.0f;
  LILY_UNROLL
  for (uint n = 0; n < DIM; n += kLanes) {
    const float value = n + lane < p.value_dim ? out[n + lane] : 0.0f;
    squares = fma(value, value, squares);
  }
  const float factor = precise::rsqrt(simd_sum(squares) / float(p.value_dim) + p.eps);
  if (writes) y[column] = out[i] * factor * gated;
}
LILY_EARLY_KERNEL(delta_step_f32_d128, 512, 2, delta_step<128>)
LILY_EARLY_KERNEL(delta_step_f32_d256, 512, 1, delta_step<256>)

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
  float values[kConvTokens][kLaneChannels], squares[kConvTokens];
  LILY_UNROLL
  for (uint j = 0; j < kConvTokens; ++j) squares[j] = 0.0f;
  LILY_UNROLL
  for (uint n = 0; n < kLaneChannels; ++n) {
    if (n * kLanes + lane >= dim) continue;
    const uint c = first + n * kLanes + lane;
    // All loads of a channel at once: a wait for each token would take longer than the traffic.
    float input[kConvTokens + kConvWidth - 1];
    LILY_UNROLL
    for (int j = 0; j < int(kConvTokens + kConvWidth - 1); ++j) {
      const int t = min(int(begin) + j, int(end) + int(kConvWidth) - 2) - int(kConvWidth) + 1;
      input[j] = conv_input(proj, stride, conv_ring, c, channels, p.position, t);
    }
    const float4 taps = *(device const float4*)(conv_weight + c * kConvWidth);
    LILY_UNROLL
    for (uint j = 0; j < kConvTokens; ++j) {
      const float4 window = float4(input[j], input[j + 1], input[j + 2], input[j + 3]);
      values[j][n] = silu(dot(window, taps));
      squares[j] = fma(values[j][n], values[j][n], squares[j]);
    }
  }
  LILY_UNROLL
  for (uint j = 0; j < kConvTokens; ++j) {
    float factor = 1.0f;
    if (is_key) {
      factor = precise::rsqrt(simd_sum(squares[j]) + 1e-6f);
      if (head < p.key_heads) factor *= precise::rsqrt(float(dim));
    }
    if (begin + j >= end) continue;
    LILY_UNROLL
    for (uint n = 0; n < kLaneChannels; ++n) {
      const uint i = n * kLanes + lane;
      if (i < dim) qkv[ulong(begin + j) * channels + first + i] = values[j][n] * factor;
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
