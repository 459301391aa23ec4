// delta: causal convolution and the gated delta rule (Gated DeltaNet, arXiv 2412.06464), one step
// (decode) or a chunk (prefill). The state and every sum are fp32.
#include <cmath>

#include "cpu/register.h"

namespace lily::cpu::LILY_ISA {
namespace {

constexpr int kMaxDim = 256;  // of keys and values

// Where the parts of a projection row and of a convolved row lie (see DeltaTensors in ops.h).
struct DeltaRow {
  int key_heads, value_heads, key_dim, value_dim;

  explicit DeltaRow(const DeltaParams& p)
      : key_heads(static_cast<int>(p.key_heads)),
        value_heads(static_cast<int>(p.value_heads)),
        key_dim(static_cast<int>(p.key_dim)),
        value_dim(static_cast<int>(p.value_dim)) {}
  int channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  int query(int key_head) const { return key_head * key_dim; }
  int key(int key_head) const { return (key_heads + key_head) * key_dim; }
  int value(int head) const { return 2 * key_heads * key_dim + head * value_dim; }
  int z(int head) const { return channels() + head * value_dim; }
  int beta(int head) const { return channels() + value_heads * value_dim + head; }
  int alpha(int head) const { return beta(head) + value_heads; }
  uint64_t stride() const { return static_cast<uint64_t>(alpha(value_heads)); }
  int key_head_of(int head) const { return head / (value_heads / key_heads); }
};

// The causal convolution of one head's channels, [first, first + count) of the row.
class HeadConv {
 public:
  // `inputs` are the rows of this call (row 0 is position `position`); earlier ones lie in the
  // ring.
  HeadConv(const float* inputs, uint64_t stride, const float* ring, uint32_t position, int channels,
           const float* weight, int first, int count)
      : inputs_(inputs + first),
        stride_(stride),
        ring_(ring + first),
        position_(position),
        channels_(channels),
        count_(count) {
    // Taps side by side become rows of taps, so that channels lie across lanes.
    for_vectors(count, [&](int i, int lanes) {
      const auto* taps = reinterpret_cast<const uint8_t*>(weight + (first + i) * kConvWidth);
      for (int tap = 0; tap < kConvWidth; ++tap) {
        store(taps_[tap] + i, as_floats(gather_some(taps + tap * sizeof(float),
                                                    kConvWidth * sizeof(float), lanes)));
      }
    });
  }

  // to[0..count) = silu(convolution at row t)
  void run(int64_t t, float* to) const {
    const float* rows[kConvWidth];
    for (int tap = 0; tap < kConvWidth; ++tap) rows[tap] = row(t + tap - (kConvWidth - 1));
    for_vectors(count_, [&](int i, int lanes) {
      Floats total = zeros();
      for (int tap = 0; tap < kConvWidth; ++tap) {
        total = fma(load_some(rows[tap] + i, lanes), load(taps_[tap] + i), total);
      }
      store_some(to + i, silu(total), lanes);
    });
  }

 private:
  // The inputs of row t of this call; before the timeline begins they are zero.
  const float* row(int64_t t) const {
    if (t >= 0) return inputs_ + t * stride_;
    const int64_t place = static_cast<int64_t>(position_) + t;
    return place >= 0 ? ring_ + (place % kConvWidth) * channels_ : kZeros;
  }

  static constexpr float kZeros[kMaxDim] = {};
  const float* inputs_;
  uint64_t stride_;
  const float* ring_;
  uint32_t position_;
  int channels_, count_;
  float taps_[kConvWidth][kMaxDim + kLanes];
};

// x / sqrt(sum x^2 + 1e-6), times `scale`. The 1e-6 is the reference's own constant, not the norm's
// eps.
void l2_normalise(float* x, int n, float scale) {
  const Floats factor = splat(scale / std::sqrt(dot(x, x, n) + 1e-6f));
  for_vectors(
      n, [&](int i, int lanes) { store_some(x + i, load_some(x + i, lanes) * factor, lanes); });
}

// exp(g) with g = -exp(A_log) * softplus(a + dt_bias).
float decay_factor(float a, float dt_bias, float decay_rate) {
  const float x = a + dt_bias;
  const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
  return std::exp(decay_rate * softplus);
}
float logistic(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// One token for kRows rows of a head's state (each a value dimension, contiguous over the key):
//   S <- decay S;  delta = beta (v - S k);  S <- S + delta k^T;  out = S q
// Both products of the old state are formed in one pass, because S q after the update is
// decay (S q) + delta (k . q). The next state may be the state.
template <int kRows>
inline void update_rows(const float* state, float* next_state, int key_dim, const float* q,
                        const float* k, float kq, const float* v, float decay, float beta,
                        float* out) {
  Floats sk[kRows], sq[kRows];
  for (int r = 0; r < kRows; ++r) sk[r] = zeros(), sq[r] = zeros();
  for_vectors(key_dim, [&](int i, int lanes) {
    const Floats key = load_some(k + i, lanes), query = load_some(q + i, lanes);
    for (int r = 0; r < kRows; ++r) {
      const Floats s = load_some(state + r * key_dim + i, lanes);
      sk[r] = fma(s, key, sk[r]);
      sq[r] = fma(s, query, sq[r]);
    }
  });
  Floats delta[kRows];
  for (int r = 0; r < kRows; ++r) {
    const float d = beta * (v[r] - decay * sum(sk[r]));
    out[r] = decay * sum(sq[r]) + d * kq;
    delta[r] = splat(d);
  }
  for_vectors(key_dim, [&](int i, int lanes) {
    const Floats key = load_some(k + i, lanes);
    for (int r = 0; r < kRows; ++r) {
      const int at = r * key_dim + i;
      store_some(next_state + at, fma(delta[r], key, load_some(state + at, lanes) * splat(decay)),
                 lanes);
    }
  });
}

constexpr int kStateRows = 4;  // rows of the state that share each load of q and k

// One token over a whole head's state.
void update_state(const float* state, float* next_state, int key_dim, int value_dim, const float* q,
                  const float* k, const float* v, float decay, float beta, float* out) {
  const float kq = dot(k, q, key_dim);
  int row = 0;
  for (; row + kStateRows <= value_dim; row += kStateRows) {
    update_rows<kStateRows>(state + row * key_dim, next_state + row * key_dim, key_dim, q, k, kq,
                            v + row, decay, beta, out + row);
  }
  for (; row < value_dim; ++row) {
    update_rows<1>(state + row * key_dim, next_state + row * key_dim, key_dim, q, k, kq, v + row,
                   decay, beta, out + row);
  }
}

// --- A chunk of tokens
// -------------------------------------------------------------------------------
//
// The state lies transposed, [Dk, Dv], so that value dimensions lie across lanes and no sum crosses
// them. kBlock tokens pass over it at once. With G(i, j) the product of decays i+1..j:
//   S_{j-1} k_j = G(0, j-1) S_0 k_j + sum over i < j of G(i, j-1) (k_i . k_j) delta_i
//   o_j         = G(0, j) S_0 q_j + sum over i <= j of G(i, j) (k_i . q_j) delta_i
//   S_B         = G(0, B) S_0 + sum of G(i, B) delta_i k_i^T
// Products, never quotients, of decays: a decay may be zero.

constexpr int kBlock = 4;        // tokens: their products of S with q and k fill 16 registers
constexpr int kLaneVectors = 2;  // vectors of value dimensions that share each load of q and k
constexpr int kLaneWidth = kLaneVectors * kLanes;

// One head's rows of a chunk.
struct HeadRows {
  const float* q;
  const float* k;
  const float* v;
  uint64_t stride;  // between tokens of q, k and v
  const float* decay;
  const float* beta;
  uint64_t gate_stride;
  float* out;
  uint64_t out_stride;

  HeadRows from(int t) const {
    return {q + t * stride, k + t * stride,          v + t * stride,
            stride,         decay + t * gate_stride, beta + t * gate_stride,
            gate_stride,    out + t * out_stride,    out_stride};
  }
};

// What all value dimensions of a block share: products of decays, and of keys with keys and
// queries.
template <int B>
struct BlockFactors {
  float decay[B + 1][B + 1];  // [i][j]: G(i, j)
  float kk[B][B], kq[B][B];   // [i][j]: k_i . k_j, k_i . q_j
  float beta[B];

  BlockFactors(const HeadRows& rows, int key_dim) {
    for (int i = 0; i <= B; ++i) {
      decay[i][i] = 1.0f;
      for (int j = i + 1; j <= B; ++j) {
        decay[i][j] = decay[i][j - 1] * rows.decay[(j - 1) * rows.gate_stride];
      }
    }
    for (int j = 0; j < B; ++j) {
      beta[j] = rows.beta[j * rows.gate_stride];
      for (int i = 0; i <= j; ++i) {
        kk[i][j] = i < j ? dot(rows.k + i * rows.stride, rows.k + j * rows.stride, key_dim) : 0.0f;
        kq[i][j] = dot(rows.k + i * rows.stride, rows.q + j * rows.stride, key_dim);
      }
    }
  }
};

// B tokens over kLaneWidth value dimensions from `column`, of which `valid` exist.
template <int B>
void block_lanes(const HeadRows& rows, const BlockFactors<B>& f, float* state, int key_dim,
                 int padded, int column, int valid) {
  Floats sk[B][kLaneVectors], sq[B][kLaneVectors];
#pragma GCC unroll 8
  for (int j = 0; j < B; ++j) {
#pragma GCC unroll 8
    for (int n = 0; n < kLaneVectors; ++n) sk[j][n] = zeros(), sq[j][n] = zeros();
  }
  const float* s = state + column;
  for (int i = 0; i < key_dim; ++i, s += padded) {
#pragma GCC unroll 8
    for (int j = 0; j < B; ++j) {
      const Floats key = splat(rows.k[j * rows.stride + i]),
                   query = splat(rows.q[j * rows.stride + i]);
#pragma GCC unroll 8
      for (int n = 0; n < kLaneVectors; ++n) {
        const Floats value = load(s + n * kLanes);
        sk[j][n] = fma(value, key, sk[j][n]);
        sq[j][n] = fma(value, query, sq[j][n]);
      }
    }
  }
  Floats delta[B][kLaneVectors];
  for (int n = 0; n < kLaneVectors; ++n) {
    const int left = valid - n * kLanes, lanes = left < 0 ? 0 : left < kLanes ? left : kLanes;
    for (int j = 0; j < B; ++j) {  // token j + 1 of the formulas
      Floats before = sk[j][n] * splat(f.decay[0][j]);
      for (int i = 0; i < j; ++i) {
        before = fma(delta[i][n], splat(f.decay[i + 1][j] * f.kk[i][j]), before);
      }
      const Floats v = load_some(rows.v + j * rows.stride + column + n * kLanes, lanes);
      delta[j][n] = splat(f.beta[j]) * (v - splat(f.decay[j][j + 1]) * before);
      Floats out = sq[j][n] * splat(f.decay[0][j + 1]);
      for (int i = 0; i <= j; ++i) {
        out = fma(delta[i][n], splat(f.decay[i + 1][j + 1] * f.kq[i][j]), out);
      }
      store_some(rows.out + j * rows.out_stride + column + n * kLanes, out, lanes);
    }
    for (int j = 0; j < B; ++j) delta[j][n] = delta[j][n] * splat(f.decay[j + 1][B]);
  }
  float* to = state + column;
  const Floats all = splat(f.decay[0][B]);
  for (int i = 0; i < key_dim; ++i, to += padded) {
#pragma GCC unroll 8
    for (int n = 0; n < kLaneVectors; ++n) {
      Floats value = load(to + n * kLanes) * all;
#pragma GCC unroll 8
      for (int j = 0; j < B; ++j)
        value = fma(delta[j][n], splat(rows.k[j * rows.stride + i]), value);
      store(to + n * kLanes, value);
    }
  }
}

template <int B>
void block(const HeadRows& rows, float* state, int key_dim, int value_dim, int padded) {
  const BlockFactors<B> factors(rows, key_dim);
  for (int column = 0; column < value_dim; column += kLaneWidth) {
    block_lanes<B>(rows, factors, state, key_dim, padded, column, value_dim - column);
  }
}

// Runs the recurrence over `tokens` rows. scratch: key_dim * (value_dim + kLaneWidth) floats.
void recur(const HeadRows& rows, float* state, int key_dim, int value_dim, int tokens,
           float* scratch) {
  const int padded = (value_dim + kLaneWidth - 1) / kLaneWidth * kLaneWidth;
  std::memset(scratch, 0, static_cast<size_t>(key_dim) * padded * sizeof(float));
  for (int r = 0; r < value_dim; ++r) {
    for (int i = 0; i < key_dim; ++i) scratch[i * padded + r] = state[r * key_dim + i];
  }
  int t = 0;
  for (; t + kBlock <= tokens; t += kBlock) {
    block<kBlock>(rows.from(t), scratch, key_dim, value_dim, padded);
  }
  for (; t < tokens; ++t) block<1>(rows.from(t), scratch, key_dim, value_dim, padded);
  for (int r = 0; r < value_dim; ++r) {
    for (int i = 0; i < key_dim; ++i) state[r * key_dim + i] = scratch[i * padded + r];
  }
}

// y = rms_norm(o) * gain * silu(z), in place of o.
void gated_norm(float* o, const float* z, const float* gain, int n, float eps) {
  const Floats scale = splat(inverse_rms(o, n, eps));
  for_vectors(n, [&](int i, int lanes) {
    store_some(o + i,
               load_some(o + i, lanes) * scale * load_some(gain + i, lanes) *
                   silu(load_some(z + i, lanes)),
               lanes);
  });
}

// Decode. A unit is a value head; heads that share a key head each form its q and k, and the first
// of them records the inputs in the ring, whose row for this position nobody reads now.
void delta_step(const Args& args) {
  const auto& p = args.as<DeltaParams>();
  const DeltaRow row(p);
  const uint32_t position = args.at<const Cursor>(0)->position;
  const float* proj = args.at<const float>(1);
  const float* weight = args.at<const float>(2);
  float* ring = args.at<float>(6);
  const float* state = args.at<const float>(7);
  float* next_state = args.at<float>(8);
  float* y = args.at<float>(9);
  const int channels = row.channels(), group = row.value_heads / row.key_heads;
  const auto conv = [&](int first, int count, float* to) {
    HeadConv(proj, row.stride(), ring, position, channels, weight, first, count).run(0, to);
  };
  const auto record = [&](int first, int count) {
    std::memcpy(ring + (position % kConvWidth) * static_cast<uint64_t>(channels) + first,
                proj + first, static_cast<size_t>(count) * sizeof(float));
  };
  args.work.for_ranges(p.value_heads, 1, [&](uint64_t unit, uint64_t) {
    const int head = static_cast<int>(unit), key_head = row.key_head_of(head);
    float q[kMaxDim], k[kMaxDim], v[kMaxDim];
    conv(row.query(key_head), row.key_dim, q);
    conv(row.key(key_head), row.key_dim, k);
    conv(row.value(head), row.value_dim, v);
    if (head % group == 0) {
      record(row.query(key_head), row.key_dim);
      record(row.key(key_head), row.key_dim);
    }
    record(row.value(head), row.value_dim);
    l2_normalise(q, row.key_dim, 1.0f / std::sqrt(static_cast<float>(row.key_dim)));
    l2_normalise(k, row.key_dim, 1.0f);
    const float decay = decay_factor(proj[row.alpha(head)], args.at<const float>(4)[head],
                                     args.at<const float>(3)[head]);
    const float beta = logistic(proj[row.beta(head)]);
    float* out = y + head * row.value_dim;
    const uint64_t at = static_cast<uint64_t>(head) * row.value_dim * row.key_dim;
    update_state(state + at, next_state + at, row.key_dim, row.value_dim, q, k, v, decay, beta,
                 out);
    gated_norm(out, proj + row.z(head), args.at<const float>(5), row.value_dim, p.eps);
  });
}

// Prefill, first part. A unit is a head (of q, k or v): it convolves its channels over the chunk.
void delta_conv(const Args& args) {
  const auto& p = args.as<DeltaParams>();
  const DeltaRow row(p);
  const float* proj = args.at<const float>(0);
  const float* weight = args.at<const float>(1);
  const float* ring = args.at<const float>(4);
  float* qkv = args.at<float>(5);
  float* gates = args.at<float>(6);
  const int channels = row.channels();
  const int tokens = static_cast<int>(p.tokens);
  args.work.for_ranges(2 * p.key_heads + p.value_heads, 1, [&](uint64_t unit, uint64_t) {
    const int head = static_cast<int>(unit);
    const bool is_key = head < 2 * row.key_heads;
    const int first = is_key ? head * row.key_dim : row.value(head - 2 * row.key_heads);
    const int count = is_key ? row.key_dim : row.value_dim;
    const HeadConv conv(proj, row.stride(), ring, p.position, channels, weight, first, count);
    for (int t = 0; t < tokens; ++t) {
      float* to = qkv + static_cast<uint64_t>(t) * channels + first;
      conv.run(t, to);
      if (is_key) {
        const float q_scale = 1.0f / std::sqrt(static_cast<float>(row.key_dim));
        l2_normalise(to, count, head < row.key_heads ? q_scale : 1.0f);
      }
    }
    if (is_key) return;
    const int value_head = head - 2 * row.key_heads;
    for (int t = 0; t < tokens; ++t) {
      const float* from = proj + t * row.stride();
      float* to = gates + static_cast<uint64_t>(t) * 2 * row.value_heads + value_head;
      to[0] = decay_factor(from[row.alpha(value_head)], args.at<const float>(3)[value_head],
                           args.at<const float>(2)[value_head]);
      to[row.value_heads] = logistic(from[row.beta(value_head)]);
    }
  });
}

// The last inputs of the chunk into the ring. A unit is a row of the ring.
void delta_carry(const Args& args) {
  const auto& p = args.as<DeltaParams>();
  const DeltaRow row(p);
  const float* proj = args.at<const float>(0);
  float* ring = args.at<float>(1);
  const uint64_t channels = static_cast<uint64_t>(row.channels());
  const uint32_t count = p.tokens < kConvWidth ? p.tokens : static_cast<uint32_t>(kConvWidth);
  args.work.for_ranges(count, 1, [&](uint64_t unit, uint64_t) {
    const uint64_t t = p.tokens - count + unit;
    std::memcpy(ring + (p.position + t) % kConvWidth * channels, proj + t * row.stride(),
                channels * sizeof(float));
  });
}

// Prefill, second part. A unit is a value head; its outputs replace its v, a block at a time. (The
// chunked matrix form with blocks of 64 tokens does more operations here: blocks of 4 already pay
// each load and store of the state four times over.)
void delta_chunk(const Args& args) {
  const auto& p = args.as<DeltaParams>();
  const DeltaRow row(p);
  float* qkv = args.at<float>(0);
  const float* gates = args.at<const float>(1);
  float* state = args.at<float>(2);
  const int tokens = static_cast<int>(p.tokens);
  args.work.for_ranges(p.value_heads, 1, [&](uint64_t unit, uint64_t) {
    const int head = static_cast<int>(unit), key_head = row.key_head_of(head);
    const HeadRows rows{qkv + row.query(key_head),
                        qkv + row.key(key_head),
                        qkv + row.value(head),
                        static_cast<uint64_t>(row.channels()),
                        gates + head,
                        gates + row.value_heads + head,
                        static_cast<uint64_t>(2 * row.value_heads),
                        qkv + row.value(head),
                        static_cast<uint64_t>(row.channels())};
    recur(rows, state + static_cast<uint64_t>(head) * row.value_dim * row.key_dim, row.key_dim,
          row.value_dim, tokens, reinterpret_cast<float*>(args.scratch));
  });
}

// Prefill, last part: the gated norm of the outputs. A unit is a token.
void delta_norm(const Args& args) {
  const auto& p = args.as<DeltaParams>();
  const DeltaRow row(p);
  const size_t width = static_cast<size_t>(row.value_heads) * row.value_dim;
  args.work.for_ranges(p.tokens, 1, [&](uint64_t t, uint64_t) {
    const float* z = args.at<const float>(1) + t * row.stride();
    float* y = args.at<float>(3) + t * width;
    std::memcpy(y, args.at<const float>(0) + t * row.channels() + row.value(0),
                width * sizeof(float));
    for (int head = 0; head < row.value_heads; ++head) {
      gated_norm(y + head * row.value_dim, z + row.z(head), args.at<const float>(2), row.value_dim,
                 p.eps);
    }
  });
}

constexpr NamedKernel kKernels[] = {
    {"delta_step_f32", delta_step},   {"delta_conv_f32", delta_conv},
    {"delta_carry_f32", delta_carry}, {"delta_chunk_f32", delta_chunk},
    {"delta_norm_f32", delta_norm},
};

}  // namespace

KernelList delta_kernels() { return kKernels; }

}  // namespace lily::cpu::LILY_ISA
