// attention: gated softmax attention over the KV cache. Decode takes one query row per head and
// cuts the context into parts; prefill takes tiles of query rows that share a kv head. Sums are
// fp32, and the running maximum starts at a finite value, so that no infinity ever enters the
// arithmetic.
#include "cpu/heads.h"

namespace lily::cpu::LILY_ISA {
namespace {

constexpr float kLowest = -3.0e38f;

// --- Decode
// ------------------------------------------------------------------------------------------

// Tokens of part `split` when `length` tokens are in the context. Depends on the length alone, so
// that every device and thread count cuts alike.
struct Part {
  uint32_t begin, end;
  Part(uint32_t length, uint32_t split) {
    uint32_t size = (length + kAttentionMaxSplits - 1) / kAttentionMaxSplits;
    if (size < kAttentionSplitTokens) size = kAttentionSplitTokens;
    begin = split * size < length ? split * size : length;
    end = begin + size < length ? begin + size : length;
  }
};

inline constexpr uint32_t kBlockTokens = 32;  // tokens whose scores are formed before their maximum
inline constexpr int kHeadBatch = 4;          // query heads that share each load of a key or value

// Turns scores into weights relative to the new maximum; returns what the old sums are scaled by.
float weigh_block(float* scores, int count, float* highest) {
  Floats tops = splat(*highest);
  int j = 0;
  for (; j + kLanes <= count; j += kLanes) tops = max(tops, load(scores + j));
  float top = maximum(tops);
  for (; j < count; ++j) top = scores[j] > top ? scores[j] : top;
  const float rescale = sum(exp(splat(*highest - top))) / kLanes;
  for_vectors(count, [&](int j, int lanes) {
    store_some(scores + j, exp(load_some(scores + j, lanes) - splat(top)), lanes);
  });
  *highest = top;
  return rescale;
}

// H query heads (kMaxHeadDim floats apart) over [part.begin, part.end): each key and value is
// loaded and converted once for all of them. out[h][0..dim) = unnormalised sum, out[h][dim] =
// maximum, out[h][dim + 1] = sum of weights.
template <int H, class T>
void attend_part(const float* queries, const T* keys, const T* values, Part part, int dim,
                 float scale, float* const* out) {
  float highest[H], total[H], scores[H][kBlockTokens + kLanes];
  for (int h = 0; h < H; ++h) {
    highest[h] = kLowest, total[h] = 0.0f;
    for_vectors(dim, [&](int i, int lanes) { store_some(out[h] + i, zeros(), lanes); });
  }
  for (uint32_t block = part.begin; block < part.end; block += kBlockTokens) {
    const int count =
        static_cast<int>(part.end - block < kBlockTokens ? part.end - block : kBlockTokens);
    const T* block_keys = keys + static_cast<uint64_t>(block) * dim;
    const T* block_values = values + static_cast<uint64_t>(block) * dim;
    float rescale[H];
    for (int j = 0; j < count; ++j) {
      Floats acc[H];
      for (int h = 0; h < H; ++h) acc[h] = zeros();
      for_vectors(dim, [&](int i, int lanes) {
        const Floats key = load_some(block_keys + j * dim + i, lanes);
        for (int h = 0; h < H; ++h) {
          acc[h] = fma(key, load_some(queries + h * kMaxHeadDim + i, lanes), acc[h]);
        }
      });
      for (int h = 0; h < H; ++h) scores[h][j] = sum(acc[h]) * scale;
    }
    for (int h = 0; h < H; ++h) {
      rescale[h] = weigh_block(scores[h], count, &highest[h]);
      total[h] *= rescale[h];
      for (int j = 0; j < count; ++j) total[h] += scores[h][j];
    }
    for_vectors(dim, [&](int i, int lanes) {
      Floats acc[H];
      for (int h = 0; h < H; ++h) acc[h] = load_some(out[h] + i, lanes) * splat(rescale[h]);
      for (int j = 0; j < count; ++j) {
        const Floats value = load_some(block_values + j * dim + i, lanes);
        for (int h = 0; h < H; ++h) acc[h] = fma(splat(scores[h][j]), value, acc[h]);
      }
      for (int h = 0; h < H; ++h) store_some(out[h] + i, acc[h], lanes);
    });
  }
  for (int h = 0; h < H; ++h) out[h][dim] = highest[h], out[h][dim + 1] = total[h];
}

// A unit is (kv head, part): its query heads read the same keys and values from cache. The unit
// that holds the newest token writes that token's k and v before it reads them.
template <class T>
void attention_decode(const Args& args) {
  const auto& p = args.as<AttentionParams>();
  const ProjectionRow row(p);
  const uint32_t position = args.at<const Cursor>(0)->position;
  const float* proj = args.at<const float>(1);
  const float* inv_freq = args.at<const float>(4);
  T* k_cache = args.at<T>(5);
  T* v_cache = args.at<T>(6);
  float* partial = args.at<float>(7);
  const int dim = row.head_dim, rotary = static_cast<int>(p.rotary_dims);
  const int group = row.q_heads / row.kv_heads;
  const Rotation rotation(inv_freq, rotary / 2, position);
  args.work.for_ranges(
      static_cast<uint64_t>(row.kv_heads) * kAttentionMaxSplits, 1, [&](uint64_t unit, uint64_t) {
        const int kv_head = static_cast<int>(unit / kAttentionMaxSplits);
        const uint32_t split = static_cast<uint32_t>(unit % kAttentionMaxSplits);
        const Part part(position + 1, split);
        if (part.begin == part.end) return;
        T* keys = k_cache + static_cast<uint64_t>(kv_head) * p.capacity * dim;
        T* values = v_cache + static_cast<uint64_t>(kv_head) * p.capacity * dim;
        if (part.end == position + 1) {
          float key[kMaxHeadDim];
          norm_rotate(proj + row.key(kv_head), args.at<const float>(3), rotation, dim, rotary,
                      p.eps, key);
          store_row(keys + static_cast<uint64_t>(position) * dim, key, dim);
          store_row(values + static_cast<uint64_t>(position) * dim, proj + row.value(kv_head), dim);
        }
        for (int first = 0; first < group; first += kHeadBatch) {
          const int heads = group - first < kHeadBatch ? group - first : kHeadBatch;
          float queries[kHeadBatch * kMaxHeadDim];
          float* out[kHeadBatch];
          for (int h = 0; h < heads; ++h) {
            const int head = kv_head * group + first + h;
            norm_rotate(proj + row.query(head), args.at<const float>(2), rotation, dim, rotary,
                        p.eps, queries + h * kMaxHeadDim);
            out[h] =
                partial + (static_cast<uint64_t>(head) * kAttentionMaxSplits + split) * (dim + 2);
          }
          switch (heads) {
            case 1: attend_part<1>(queries, keys, values, part, dim, p.scale, out); break;
            case 2: attend_part<2>(queries, keys, values, part, dim, p.scale, out); break;
            case 3: attend_part<3>(queries, keys, values, part, dim, p.scale, out); break;
            default: attend_part<4>(queries, keys, values, part, dim, p.scale, out); break;
          }
        }
      });
}

void attention_merge(const Args& args) {
  const auto& p = args.as<AttentionParams>();
  const ProjectionRow row(p);
  const uint32_t length = args.at<const Cursor>(0)->position + 1;
  const float* proj = args.at<const float>(1);
  const float* partial = args.at<const float>(2);
  float* y = args.at<float>(3);
  const int dim = row.head_dim;
  args.work.for_ranges(p.q_heads, 1, [&](uint64_t head, uint64_t) {
    const float* parts = partial + head * kAttentionMaxSplits * (dim + 2);
    const float* gate = proj + row.gate(static_cast<int>(head));
    uint32_t splits = 0;
    float highest = kLowest;
    for (; splits < kAttentionMaxSplits; ++splits) {
      const Part part(length, splits);
      if (part.begin == part.end) break;
      const float maximum = parts[splits * (dim + 2) + dim];
      highest = maximum > highest ? maximum : highest;
    }
    float weights[kAttentionMaxSplits], total = 0.0f;
    for (uint32_t s = 0; s < splits; ++s) {
      const float* end = parts + s * (dim + 2) + dim;
      weights[s] = sum(exp(splat(end[0] - highest))) / kLanes;
      total += weights[s] * end[1];
    }
    for_vectors(dim, [&](int i, int lanes) {
      Floats acc = zeros();
      for (uint32_t s = 0; s < splits; ++s) {
        acc = fma(splat(weights[s] / total), load_some(parts + s * (dim + 2) + i, lanes), acc);
      }
      store_some(y + head * dim + i, acc * sigmoid(load_some(gate + i, lanes)), lanes);
    });
  });
}

// --- Prefill
// -----------------------------------------------------------------------------------------

constexpr int kQueryRows = 96;  // (token, head) rows of a tile: scores, sums and panel fit into L2

// The scratch of one tile, carved from the thread's memory.
struct TileScratch {
  float* panel;    // [dim, kPanelRows] keys, transposed
  float* values;   // [kPanelRows, dim] values as fp32
  float* scores;   // [kQueryRows, kPanelRows]
  float* sums;     // [kQueryRows, dim]
  float* highest;  // [kQueryRows]
  float* total;    // [kQueryRows]

  TileScratch(std::byte* memory, int dim) {
    float* at = reinterpret_cast<float*>(memory);
    panel = at, at += static_cast<size_t>(dim) * kPanelRows;
    values = at, at += static_cast<size_t>(kPanelRows) * (dim + kPanelRows);
    scores = at, at += kQueryRows * kPanelRows;
    sums = at, at += static_cast<size_t>(kQueryRows) * dim;
    highest = at, at += kQueryRows;
    total = at;
  }
};

// Turns `count` scores of one row into weights, of which only the first `visible` count, and scales
// what the row has gathered so far.
void softmax_row(float* scores, int count, int visible, float scale, float* highest, float* total,
                 float* sums, int dim) {
  for (int j = visible > 0 ? visible : 0; j < count; ++j) scores[j] = 0.0f;
  if (visible <= 0) return;
  for_vectors(visible, [&](int j, int lanes) {
    store_some(scores + j, load_some(scores + j, lanes) * splat(scale), lanes);
  });
  const float rescale = weigh_block(scores, visible, highest);
  float added = 0.0f;
  for (int j = 0; j < visible; ++j) added += scores[j];
  *total = *total * rescale + added;
  for_vectors(dim, [&](int i, int lanes) {
    store_some(sums + i, load_some(sums + i, lanes) * splat(rescale), lanes);
  });
}

// Rows are (token, head of the group) pairs in token order, so a row's query head and token follow
// from its number.
template <class T>
class PrefillTile {
 public:
  PrefillTile(const Args& args, int kv_head)
      : p_(args.as<AttentionParams>()),
        row_(p_),
        dim_(row_.head_dim),
        group_(row_.q_heads / row_.kv_heads),
        kv_head_(kv_head),
        q_(args.at<const float>(0)),
        proj_(args.at<const float>(1)),
        keys_(args.at<const T>(2) + static_cast<uint64_t>(kv_head) * p_.capacity * dim_),
        values_(args.at<const T>(3) + static_cast<uint64_t>(kv_head) * p_.capacity * dim_),
        y_(args.at<float>(4)),
        scratch_(args.scratch, dim_) {}

  void run(int first_row, int rows) {
    for (int r = 0; r < rows; ++r) scratch_.highest[r] = kLowest, scratch_.total[r] = 0.0f;
    std::memset(scratch_.sums, 0, static_cast<size_t>(rows) * dim_ * sizeof(float));
    const int length = static_cast<int>(p_.position) + (first_row + rows - 1) / group_ + 1;
    for (int from = 0; from < length; from += kPanelRows) {
      block(first_row, rows, from, length - from < kPanelRows ? length - from : kPanelRows);
    }
    for (int r = 0; r < rows; ++r) finish(first_row + r, r);
  }

 private:
  uint64_t query_row(int row) const {
    return static_cast<uint64_t>(row / group_) * row_.q_heads + kv_head_ * group_ + row % group_;
  }

  void block(int first_row, int rows, int from, int count) {
    using S = typename CacheStorage<T>::Stored;
    const Stored stored{reinterpret_cast<const uint8_t*>(keys_), nullptr, nullptr, dim_, 0};
    decode_panel<S>(stored, from, count, 0, dim_, scratch_.panel);
    tiles(
        rows, [&](int m) { return q_ + query_row(first_row + m) * dim_; }, dim_, scratch_.panel,
        kPanelRows, [&](int m) { return scratch_.scores + m * kPanelRows; }, kPanelRows, false);
    for (int r = 0; r < rows; ++r) {
      const int visible = static_cast<int>(p_.position) + (first_row + r) / group_ + 1 - from;
      softmax_row(scratch_.scores + r * kPanelRows, count, visible < count ? visible : count,
                  p_.scale, scratch_.highest + r, scratch_.total + r,
                  scratch_.sums + static_cast<size_t>(r) * dim_, dim_);
    }
    // Rows of the cache are already [tokens, dim]: a panel whose depth is the tokens. Padded to
    // whole panels of columns, because a tile loads kPanelRows columns.
    const int padded = (dim_ + kPanelRows - 1) / kPanelRows * kPanelRows;
    for (int j = 0; j < count; ++j) {
      for_vectors(dim_, [&](int i, int lanes) {
        store_some(scratch_.values + j * padded + i,
                   load_some(values_ + static_cast<uint64_t>(from + j) * dim_ + i, lanes), lanes);
      });
    }
    for (int column = 0; column < dim_; column += kPanelRows) {
      const int columns = dim_ - column < kPanelRows ? dim_ - column : kPanelRows;
      tiles(
          rows, [&](int m) { return scratch_.scores + m * kPanelRows; }, count,
          scratch_.values + column, padded,
          [&](int m) { return scratch_.sums + static_cast<size_t>(m) * dim_ + column; }, columns,
          true);
    }
  }

  void finish(int row, int r) {
    const int head = kv_head_ * group_ + row % group_;
    const float* gate = proj_ + (row / group_) * row_.stride() + row_.gate(head);
    const float* sums = scratch_.sums + static_cast<size_t>(r) * dim_;
    float* to = y_ + query_row(row) * dim_;
    const Floats inverse = splat(1.0f / scratch_.total[r]);
    for_vectors(dim_, [&](int i, int lanes) {
      store_some(to + i, load_some(sums + i, lanes) * inverse * sigmoid(load_some(gate + i, lanes)),
                 lanes);
    });
  }

  const AttentionParams& p_;
  ProjectionRow row_;
  int dim_, group_, kv_head_;
  const float* q_;
  const float* proj_;
  const T* keys_;
  const T* values_;
  float* y_;
  TileScratch scratch_;
};

template <class T>
void attention_prefill(const Args& args) {
  const auto& p = args.as<AttentionParams>();
  const int rows = static_cast<int>(p.tokens * (p.q_heads / p.kv_heads));
  const uint64_t tiles_per_head = (rows + kQueryRows - 1) / kQueryRows;
  args.work.for_ranges(tiles_per_head * p.kv_heads, 1, [&](uint64_t unit, uint64_t) {
    // Last tiles first: they see the most keys, and a long unit at the end would leave threads
    // idle.
    const int first = static_cast<int>(tiles_per_head - 1 - unit % tiles_per_head) * kQueryRows;
    PrefillTile<T> tile(args, static_cast<int>(unit / tiles_per_head));
    tile.run(first, rows - first < kQueryRows ? rows - first : kQueryRows);
  });
}

constexpr NamedKernel kKernels[] = {
    {"attention_decode_f32", attention_decode<float>},
    {"attention_decode_bf16", attention_decode<uint16_t>},
    {"attention_merge_f32", attention_merge},
    {"attention_prefill_f32", attention_prefill<float>},
    {"attention_prefill_bf16", attention_prefill<uint16_t>},
};

}  // namespace

KernelList attention_kernels() { return kKernels; }

}  // namespace lily::cpu::LILY_ISA
