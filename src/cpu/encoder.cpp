// encoder: what the gate's bidirectional encoder needs beside the linear products. Rows of windows
// follow one another; offsets say where each begins.
#include "cpu/register.h"

namespace lily::cpu::LILY_ISA {
namespace {

constexpr int kDim = kEncoderHeadDim;

// row = layer_norm(row) * gain + shift, and the same into y. The mean comes first: the variance is
// that of what is left, so that a large mean costs no digits.
void layer_norm(float* row, const float* gain, const float* shift, int width, float eps, float* y) {
  Floats total = zeros();
  for_vectors(width, [&](int i, int lanes) { total = total + load_some(row + i, lanes); });
  const float mean = sum(total) / static_cast<float>(width);
  Floats squares = zeros();
  for_vectors(width, [&](int i, int lanes) {
    store_some(row + i, load_some(row + i, lanes) - splat(mean), lanes);
    const Floats centred = load_some(row + i, lanes);  // zeros past the end
    squares = fma(centred, centred, squares);
  });
  const float factor = 1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(width) + eps);
  for_vectors(width, [&](int i, int lanes) {
    const Floats scaled = load_some(row + i, lanes) * splat(factor);
    const Floats value = fma(scaled, load_some(gain + i, lanes), load_some(shift + i, lanes));
    store_some(row + i, value, lanes);
    store_some(y + i, value, lanes);
  });
}

void encoder_embed(const Args& args) {
  const auto& p = args.as<EncoderParams>();
  const uint32_t* positions = args.at<const uint32_t>(0);
  const uint32_t* forms = args.at<const uint32_t>(1);
  const float* position_table = args.at<const float>(2);
  const float* form_table = args.at<const float>(3);
  const int width = static_cast<int>(p.width);
  args.work.for_ranges(p.tokens, 4, [&](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      float* row = args.at<float>(6) + t * p.width;
      const float* position = position_table + uint64_t{positions[t]} * p.width;
      const float* form = form_table + uint64_t{forms[t]} * p.width;
      for_vectors(width, [&](int i, int lanes) {
        const Floats place = load_some(position + i, lanes) + load_some(form + i, lanes);
        store_some(row + i, load_some(row + i, lanes) + place, lanes);
      });
      layer_norm(row, args.at<const float>(4), args.at<const float>(5), width, p.eps,
                 args.at<float>(7) + t * p.width);
    }
  });
}

void encoder_norm(const Args& args) {
  const auto& p = args.as<EncoderParams>();
  const float* bias = args.at<const float>(0);
  const int width = static_cast<int>(p.width);
  args.work.for_ranges(p.tokens, 4, [&](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      float* row = args.at<float>(3) + t * p.width;
      for_vectors(width, [&](int i, int lanes) {
        store_some(row + i, load_some(row + i, lanes) + load_some(bias + i, lanes), lanes);
      });
      layer_norm(row, args.at<const float>(1), args.at<const float>(2), width, p.eps,
                 args.at<float>(4) + t * p.width);
    }
  });
}

// --- Attention
// ------------------------------------------------------------------------------------

constexpr int round_up(int n, int to) { return (n + to - 1) / to * to; }

// The columns of one head in a window's rows, with its bias.
struct HeadColumns {
  const float* rows;  // first row, first column of the head
  uint64_t stride;
  const float* bias;
};

// One head of one window in scratch: queries (scaled) and values row by row, keys transposed, and
// the scores of a tile of queries.
struct HeadRoom {
  static constexpr int kTokens = round_up(kEncoderMaxWindow, kPanelRows);
  static constexpr int kValuePitch = round_up(kDim, kPanelRows);
  static constexpr size_t kFloats =
      size_t{kEncoderMaxWindow} * (kDim + kValuePitch) + size_t{kTokens} * (kDim + kTileRows);
  static_assert(kFloats * sizeof(float) <= kScratchBytes);

  float* queries;  // [n, kDim]
  float* values;   // [n, kValuePitch]; zeros past kDim
  float* keys;     // [kDim, key_pitch]; zeros past n
  float* scores;   // [kTileRows, key_pitch]
  int n, key_pitch;

  HeadRoom(float* scratch, int rows) : n(rows), key_pitch(round_up(rows, kPanelRows)) {
    queries = scratch;
    values = queries + static_cast<size_t>(n) * kDim;
    keys = values + static_cast<size_t>(n) * kValuePitch;
    scores = keys + static_cast<size_t>(key_pitch) * kDim;
  }

  void fill(HeadColumns q, HeadColumns k, HeadColumns v, float scale) {
    for (int t = 0; t < n; ++t) {
      for (int d = 0; d < kDim; d += kLanes) {
        const auto at = [&](HeadColumns from) {
          return load(from.rows + t * from.stride + d) + load(from.bias + d);
        };
        store(queries + t * kDim + d, at(q) * splat(scale));
        store(values + t * kValuePitch + d, at(v));
      }
      for (int d = kDim; d < kValuePitch; d += kLanes) store(values + t * kValuePitch + d, zeros());
    }
    for (int d = 0; d < kDim; ++d) {
      float* row = keys + static_cast<size_t>(d) * key_pitch;
      for (int t = 0; t < n; ++t) row[t] = k.rows[t * k.stride + d] + k.bias[d];
      for (int t = n; t < key_pitch; ++t) row[t] = 0.0f;
    }
  }

  // Softmax of scores [0, n); what lies behind stays.
  void weigh(float* row) const {
    Floats top = splat(row[0]);
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) top = max(load(row + i), top);
    float highest = maximum(top);
    for (; i < n; ++i) highest = row[i] > highest ? row[i] : highest;
    Floats total = zeros();
    for_vectors(n, [&](int at, int lanes) {
      store_some(row + at, exp(load_some(row + at, lanes) - splat(highest)), lanes);
      total = total + load_some(row + at, lanes);
    });
    const Floats factor = splat(1.0f / sum(total));
    for_vectors(n, [&](int at, int lanes) {
      store_some(row + at, load_some(row + at, lanes) * factor, lanes);
    });
  }

  // Rows [first, first + rows) of the window, into y.
  void attend(int first, int rows, float* y, uint64_t stride) {
    const auto query = [&](int m) { return queries + (first + m) * kDim; };
    const auto score = [&](int m) { return scores + static_cast<size_t>(m) * key_pitch; };
    for (int from = 0; from < n; from += kPanelRows) {
      tiles(
          rows, query, kDim, keys + from, key_pitch, [&](int m) { return score(m) + from; },
          kPanelRows, false);
    }
    for (int m = 0; m < rows; ++m) weigh(score(m));
    for (int d = 0; d < kDim; d += kPanelRows) {
      const int columns = kDim - d < kPanelRows ? kDim - d : kPanelRows;
      tiles(
          rows, score, n, values + d, kValuePitch,
          [&](int m) { return y + (first + m) * stride + d; }, columns, false);
    }
  }
};

void encoder_attention(const Args& args) {
  const auto& p = args.as<EncoderParams>();
  const float* qkv = args.at<const float>(0);
  const float* bias = args.at<const float>(1);
  const uint32_t* offsets = args.at<const uint32_t>(2);
  float* y = args.at<float>(3);
  const uint64_t stride = uint64_t{3} * p.width;
  args.work.for_ranges(uint64_t{p.windows} * p.heads, 1, [&](uint64_t unit, uint64_t) {
    const uint64_t window = unit / p.heads, column = unit % p.heads * kDim;
    const uint64_t begin = offsets[window];
    const int n = static_cast<int>(offsets[window + 1] - begin);
    const auto part = [&](uint64_t which) {
      const uint64_t at = which * p.width + column;
      return HeadColumns{qkv + begin * stride + at, stride, bias + at};
    };
    HeadRoom room(reinterpret_cast<float*>(args.scratch), n);
    room.fill(part(0), part(1), part(2), p.scale);
    for (int first = 0; first < n; first += kTileRows) {
      const int rows = n - first < kTileRows ? n - first : kTileRows;
      room.attend(first, rows, y + begin * p.width + column, p.width);
    }
  });
}

// --- GELU and pooling
// -----------------------------------------------------------------------------

// x times the normal distribution: max(x, 0) - |x| erfc(|x| / sqrt 2) / 2, which keeps the digits
// of the small side. erfc(z) = e^(-z^2) t P(t) with t = 1 / (1 + 0.45 z): P is a minimax fit of
// ours to e^(z^2) erfc(z) / t for t in (0, 1], off by 3e-8 of it, and by 2e-7 in float32.
inline Floats gelu(Floats x) {
  const Floats size = max(x, zeros() - x);
  const Floats z = size * splat(0.70710678f);
  const Floats t = splat(1.0f) / fma(z, splat(0.45f), splat(1.0f));
  Floats p = splat(-0.0414832723f);
  p = fma(p, t, splat(0.191088733f));
  p = fma(p, t, splat(-0.301311021f));
  p = fma(p, t, splat(0.143118985f));
  p = fma(p, t, splat(-0.0227744693f));
  p = fma(p, t, splat(0.120094901f));
  p = fma(p, t, splat(0.17522305f));
  p = fma(p, t, splat(0.22827477f));
  p = fma(p, t, splat(0.253883012f));
  p = fma(p, t, splat(0.253885323f));
  const Floats tail = p * t * exp(zeros() - z * z);
  return max(zeros(), x) - splat(0.5f) * size * tail;
}

void encoder_gelu(const Args& args) {
  const auto& p = args.as<EncoderParams>();
  const float* x = args.at<const float>(0);
  const float* bias = args.at<const float>(1);
  float* y = args.at<float>(2);
  args.work.for_ranges(p.tokens, 4, [&](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const float* from = x + t * p.width;
      float* to = y + t * p.width;
      for_vectors(static_cast<int>(p.width), [&](int i, int lanes) {
        store_some(to + i, gelu(load_some(from + i, lanes) + load_some(bias + i, lanes)), lanes);
      });
    }
  });
}

void encoder_pool(const Args& args) {
  const auto& p = args.as<EncoderParams>();
  const float* hidden = args.at<const float>(0);
  const uint32_t* offsets = args.at<const uint32_t>(1);
  args.work.for_ranges(p.windows, 1, [&](uint64_t window, uint64_t) {
    const uint32_t begin = offsets[window], end = offsets[window + 1];
    float* mean = args.at<float>(2) + window * 2 * p.width;
    const Floats share = splat(1.0f / static_cast<float>(end - begin));
    for_vectors(static_cast<int>(p.width), [&](int i, int lanes) {
      const float* at = hidden + uint64_t{begin} * p.width + i;
      Floats total = zeros(), top = load_some(at, lanes);
      for (uint32_t t = begin; t < end; ++t, at += p.width) {
        const Floats value = load_some(at, lanes);
        total = total + value;
        top = max(top, value);
      }
      store_some(mean + i, total * share, lanes);
      store_some(mean + p.width + i, top, lanes);
    });
  });
}

constexpr NamedKernel kKernels[] = {{"encoder_embed_f32", encoder_embed},
                                    {"encoder_norm_f32", encoder_norm},
                                    {"encoder_attention_f32", encoder_attention},
                                    {"encoder_gelu_f32", encoder_gelu},
                                    {"encoder_pool_f32", encoder_pool}};

}  // namespace

KernelList encoder_kernels() { return kKernels; }

}  // namespace lily::cpu::LILY_ISA
