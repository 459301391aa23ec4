// Rows of a stored weight matrix times rows of activations: the loops that every linear-like kernel
// shares. Two forms: dot products along the columns (one activation row; bound by memory), and
// tiles of activation rows against a decoded panel of weights (many rows; bound by arithmetic).
// Activations and sums are fp32 throughout. Knows no kernel and no layer.
#pragma once

#include <cstring>

#include "cpu/simd.h"
#include "params.h"

namespace lily::cpu::LILY_ISA {

// --- Stored matrices
// -------------------------------------------------------------------------------

struct StoredF32 {
  static constexpr bool kQuantised = false;
  static constexpr int kBits = 32;
};
struct StoredBf16 {
  static constexpr bool kQuantised = false;
  static constexpr int kBits = 16;
};
struct StoredQ8 {
  static constexpr bool kQuantised = true;
  static constexpr int kBits = 8;
};
struct StoredQ4 {
  static constexpr bool kQuantised = true;
  static constexpr int kBits = 4;
};

// A dense matrix [rows, cols]; scales and biases are bf16 [rows, cols / group].
struct Stored {
  const uint8_t* weight;
  const uint16_t* scales;
  const uint16_t* biases;
  int cols;
  int group;

  int groups() const { return group ? cols / group : 0; }
  template <class S>
  const uint8_t* row(uint64_t r) const {
    return weight + r * (static_cast<uint64_t>(cols) * S::kBits / 8);
  }
  // The same matrix, starting `rows` rows further down.
  template <class S>
  Stored from_row(uint64_t rows) const {
    return {row<S>(rows), scales + rows * groups(), biases + rows * groups(), cols, group};
  }
};

// --- One activation row: dot products
// ----------------------------------------------------------------

// An activation row as dot_rows wants it: in the lane order of the storage, with the sum of each
// group (which the quantisation biases multiply).
struct PreparedRow {
  const float* x;
  const float* group_sums;
};

// Floats of scratch that prepare_row takes for `cols` columns.
inline size_t prepared_floats(int cols) { return static_cast<size_t>(cols) + cols / 32 + kLanes; }

template <class S>
inline PreparedRow prepare_row(const float* x, int cols, int group, float* scratch) {
  if constexpr (!S::kQuantised) return {x, nullptr};
  float* sums = scratch + cols;
  for (int g = 0; g < cols / group; ++g) {
    Floats total = zeros();
    for (int i = g * group; i < (g + 1) * group; i += kLanes) {
      const Floats value = load(x + i);
      total = total + value;
      store(scratch + i, S::kBits == 4 ? to_q4_order(value) : value);
    }
    sums[g] = sum(total);
  }
  return {scratch, sums};
}

template <class S>
inline Floats load_weights(const uint8_t* row, int column) {
  if constexpr (S::kBits == 32) return load(reinterpret_cast<const float*>(row) + column);
  if constexpr (S::kBits == 16) return load_bf16(reinterpret_cast<const uint16_t*>(row) + column);
  if constexpr (S::kBits == 8) return load_u8(row + column);
  if constexpr (S::kBits == 4) return load_q4(row + column / 2);
}
// The same, or only the first lanes; rows that are not quantised may end inside a vector.
template <class S>
inline Floats load_some_weights(const uint8_t* row, int column, int lanes) {
  static_assert(!S::kQuantised);
  if constexpr (S::kBits == 32) {
    return load_some(reinterpret_cast<const float*>(row) + column, lanes);
  } else {
    return load_some(reinterpret_cast<const uint16_t*>(row) + column, lanes);
  }
}

// out[m][r] = row (first + r) of w times x[m], for r < R, m < M. Each load of x serves R rows, each
// decoded weight M activations.
template <class S, int R, int M>
inline void dot_plain(const Stored& w, uint64_t first, const PreparedRow* x, float* const* out) {
  Floats acc[R][M];
  const uint8_t* rows[R];
  for (int r = 0; r < R; ++r) {
    rows[r] = w.template row<S>(first + r);
    for (int m = 0; m < M; ++m) acc[r][m] = zeros();
  }
  for_vectors(w.cols, [&](int i, int lanes) {
    Floats weights[R];
    for (int r = 0; r < R; ++r) {
      weights[r] = load_some_weights<S>(rows[r], i, lanes);
    }
    for (int m = 0; m < M; ++m) {
      const Floats value = load_some(x[m].x + i, lanes);
      for (int r = 0; r < R; ++r) acc[r][m] = fma(weights[r], value, acc[r][m]);
    }
  });
  for (int r = 0; r < R; ++r) {
    for (int m = 0; m < M; ++m) out[m][r] = sum(acc[r][m]);
  }
}

// Products biases[g] * group_sums[g], to be summed over lanes.
inline Floats bias_part(const uint16_t* biases, const float* group_sums, int groups) {
  Floats acc = zeros();
  for_vectors(groups, [&](int g, int lanes) {
    acc = fma(load_some(biases + g, lanes), load_some(group_sums + g, lanes), acc);
  });
  return acc;
}

// Rows of a matrix follow one another, so a thread walks through memory; but it walks along several
// rows at once, which the hardware's own prefetching follows badly.
inline void prefetch_ahead(const uint8_t* p, int bytes) {
  constexpr int kDistance = 4096;
  for (int at = 0; at < bytes; at += 64) __builtin_prefetch(p + kDistance + at);
}

// The same for quantised rows: scale * (codes . x) + bias * (sum of x), per group.
template <class S, int R, int M>
inline void dot_quantised(const Stored& w, uint64_t first, const PreparedRow* x,
                          float* const* out) {
  const int groups = w.groups();
  float scales[R * (kMaxColumns / 32) + kLanes];  // [R, groups], as they lie in the file
  const uint16_t* stored = w.scales + first * groups;
  for_vectors(R * groups,
              [&](int i, int lanes) { store(scales + i, load_some(stored + i, lanes)); });
  Floats acc[R][M];
  const uint8_t* rows[R];
  for (int r = 0; r < R; ++r) {
    rows[r] = w.template row<S>(first + r);
    const uint16_t* biases = w.biases + (first + r) * groups;
    for (int m = 0; m < M; ++m) acc[r][m] = bias_part(biases, x[m].group_sums, groups);
  }
  for (int g = 0; g < groups; ++g) {
    Floats part[R][M];
    for (int r = 0; r < R; ++r) {
      for (int m = 0; m < M; ++m) part[r][m] = zeros();
    }
    prefetch_ahead(rows[0] + static_cast<int64_t>(g) * R * w.group * S::kBits / 8,
                   R * w.group * S::kBits / 8);
    for (int i = g * w.group; i < (g + 1) * w.group; i += 2 * kLanes) {
#pragma GCC unroll 2
      for (int u = 0; u < 2 * kLanes; u += kLanes) {  // groups are multiples of 32
        Floats codes[R];
        for (int r = 0; r < R; ++r) codes[r] = load_weights<S>(rows[r], i + u);
        for (int m = 0; m < M; ++m) {
          const Floats value = load(x[m].x + i + u);
          for (int r = 0; r < R; ++r) part[r][m] = fma(codes[r], value, part[r][m]);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      const Floats scale = splat(scales[r * groups + g]);
      for (int m = 0; m < M; ++m) acc[r][m] = fma(part[r][m], scale, acc[r][m]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int m = 0; m < M; ++m) out[m][r] = sum(acc[r][m]);
  }
}

// out[m][i] = row (first + i) of w times x[m], for i < count.
template <class S, int R, int M>
inline void dot_block(const Stored& w, uint64_t first, uint64_t count, const PreparedRow* x,
                      float* const* out) {
  const auto run = [&]<int kRows>(uint64_t i) {
    float* to[M];
    for (int m = 0; m < M; ++m) to[m] = out[m] + i;
    if constexpr (S::kQuantised) {
      dot_quantised<S, kRows, M>(w, first + i, x, to);
    } else {
      dot_plain<S, kRows, M>(w, first + i, x, to);
    }
  };
  uint64_t i = 0;
  for (; i + R <= count; i += R) run.template operator()<R>(i);
  for (; i < count; ++i) run.template operator()<1>(i);
}

// out[i] = row (first + i) of w times x, for i < count.
template <class S>
inline void dot_rows(const Stored& w, uint64_t first, uint64_t count, PreparedRow x, float* out) {
  dot_block<S, 4, 1>(w, first, count, &x, &out);
}

inline constexpr int kDotBatch = 4;  // activation rows that share each decoded weight

template <class S>
inline void dot_rows(const Stored& w, uint64_t first, uint64_t count, int rows,
                     const PreparedRow* x, float* const* out) {
  switch (rows) {
    case 1: return dot_block<S, 4, 1>(w, first, count, x, out);
    case 2: return dot_block<S, 2, 2>(w, first, count, x, out);
    case 3: return dot_block<S, 2, 3>(w, first, count, x, out);
    default: return dot_block<S, 2, 4>(w, first, count, x, out);
  }
}

// --- Many activation rows: panels and tiles
// ----------------------------------------------------------

inline constexpr int kPanelRows = kTileVectors * kLanes;  // weight rows in a panel
inline constexpr int kTileRows = 6;                       // activation rows in a tile
inline constexpr int kPanelColumns = 512;  // columns decoded at once: the panel stays in L2
inline constexpr size_t kPanelFloats = size_t{kPanelRows} * kPanelColumns;

// Lane r < lanes: the 32-bit word at p + r * stride; zero above.
inline Words gather_some(const uint8_t* p, int64_t stride_bytes, int lanes) {
  if (lanes == kLanes) return gather_words(p, stride_bytes);
  uint32_t words[kLanes] = {};
  for (int r = 0; r < lanes; ++r) std::memcpy(&words[r], p + r * stride_bytes, 4);
  return gather_words(reinterpret_cast<const uint8_t*>(words), 4);
}

inline Floats gather_bf16(const uint16_t* p, int64_t stride, int lanes) {
  uint16_t halves[kLanes] = {};
  for (int r = 0; r < lanes; ++r) std::memcpy(&halves[r], p + r * stride, 2);
  return load_bf16(halves);
}

// Decodes columns [from, to) of `lanes` rows into panel[column - from][lane], panel rows kPanelRows
// apart. Rows lie across lanes, so a word of each row at a time is turned into columns: blocks of
// kLanes words by a transpose, what is left by gathers.
template <class S>
inline void decode_lanes(const Stored& w, uint64_t first, int lanes, int from, int to,
                         float* panel) {
  const int64_t stride = static_cast<int64_t>(w.cols) * S::kBits / 8;
  const uint8_t* rows = w.template row<S>(first);
  constexpr int kPerWord = 32 / S::kBits;
  Floats scale = zeros(), bias = zeros();
  const auto decode_word = [&](Words words, int column) {
    if constexpr (S::kQuantised) {
      if (column == from || column % w.group == 0) {
        const uint64_t at = first * w.groups() + column / w.group;
        scale = gather_bf16(w.scales + at, w.groups(), lanes);
        bias = gather_bf16(w.biases + at, w.groups(), lanes);
      }
    }
    float* to_row = panel + static_cast<size_t>(column - from) * kPanelRows;
    for (int i = 0; i < kPerWord; ++i, to_row += kPanelRows) {
      const Words shifted = shift_right(words, i * S::kBits);
      if constexpr (S::kBits == 4) store(to_row, fma(low_nibble(shifted), scale, bias));
      if constexpr (S::kBits == 8) store(to_row, fma(low_byte(shifted), scale, bias));
      if constexpr (S::kBits == 16) store(to_row, low_bf16(shifted));
      if constexpr (S::kBits == 32) store(to_row, as_floats(shifted));
    }
  };
  const auto word_at = [&](int column) {
    return rows + static_cast<int64_t>(column) * S::kBits / 8;
  };
  int column = from;
  constexpr int kBlock = kLanes * kPerWord;
  for (; lanes == kLanes && column + kBlock <= to; column += kBlock) {
    Words block[kLanes];
    transpose_words(word_at(column), stride, block);
    for (int i = 0; i < kLanes; ++i) decode_word(block[i], column + i * kPerWord);
  }
  for (; column + kPerWord <= to; column += kPerWord) {
    decode_word(gather_some(word_at(column), stride, lanes), column);
  }
  if constexpr (S::kBits == 16) {  // an odd last column: half a word
    if (column < to) {
      store(panel + static_cast<size_t>(column - from) * kPanelRows,
            gather_bf16(reinterpret_cast<const uint16_t*>(rows) + column, w.cols, lanes));
    }
  }
}

// Decodes rows [first, first + count) (count <= kPanelRows), columns [from, to).
template <class S>
inline void decode_panel(const Stored& w, uint64_t first, int count, int from, int to,
                         float* panel) {
  for (int v = 0; v < kTileVectors; ++v) {
    const int left = count - v * kLanes;
    if (left > 0) {
      const int lanes = left < kLanes ? left : kLanes;
      decode_lanes<S>(w, first + v * kLanes, lanes, from, to, panel + v * kLanes);
    } else {  // rows that do not exist: zeros, so that the tile needs no special case
      for (int k = 0; k < to - from; ++k) {
        store(panel + static_cast<size_t>(k) * kPanelRows + v * kLanes, zeros());
      }
    }
  }
}

// y[m][0..count) (+)= sum over k of x[m][k] * panel[k][.], for m < M.
// panel rows are `panel_stride` floats apart; x and y are given row by row, so rows may lie
// anywhere.
template <int M>
inline void tile(const float* const* x, int depth, const float* panel, size_t panel_stride,
                 float* const* y, int count, bool accumulate) {
  Floats acc[M][kTileVectors];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) acc[m][v] = zeros();
  }
  for (int k = 0; k < depth; ++k, panel += panel_stride) {
    Floats w[kTileVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) w[v] = load(panel + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const Floats value = splat(x[m][k]);
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) acc[m][v] = fma(value, w[v], acc[m][v]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kTileVectors; ++v) {
      const int left = count - v * kLanes;
      if (left <= 0) break;
      const int lanes = left < kLanes ? left : kLanes;
      float* at = y[m] + v * kLanes;
      store_some(at, accumulate ? acc[m][v] + load_some(at, lanes) : acc[m][v], lanes);
    }
  }
}

// The same for any number of rows; x_of(m) and y_of(m) give the addresses of row m.
template <class XRow, class YRow>
inline void tiles(int rows, XRow&& x_of, int depth, const float* panel, size_t panel_stride,
                  YRow&& y_of, int count, bool accumulate) {
  for (int m = 0; m < rows; m += kTileRows) {
    const float* x[kTileRows];
    float* y[kTileRows];
    const int here = rows - m < kTileRows ? rows - m : kTileRows;
    for (int i = 0; i < here; ++i) x[i] = x_of(m + i), y[i] = y_of(m + i);
    switch (here) {
      case 1: tile<1>(x, depth, panel, panel_stride, y, count, accumulate); break;
      case 2: tile<2>(x, depth, panel, panel_stride, y, count, accumulate); break;
      case 3: tile<3>(x, depth, panel, panel_stride, y, count, accumulate); break;
      case 4: tile<4>(x, depth, panel, panel_stride, y, count, accumulate); break;
      case 5: tile<5>(x, depth, panel, panel_stride, y, count, accumulate); break;
      default: tile<6>(x, depth, panel, panel_stride, y, count, accumulate); break;
    }
  }
}

// At most this many activation rows are cheaper as dot products than as tiles: decoding a panel,
// which gathers, costs about as much as decoding its rows three times along the columns.
inline constexpr int kDotLimit = 2 * kDotBatch;

// The dot-product form of multiply_panel, for a batch of at most kDotBatch rows.
template <class S, class XRow, class YRow>
inline void multiply_few(const Stored& w, uint64_t first, int count, int rows, XRow&& x_of,
                         YRow&& y_of, bool accumulate, float* scratch) {
  PreparedRow x[kDotBatch];
  float* sums[kDotBatch];
  for (int m = 0; m < rows; ++m) {
    x[m] = prepare_row<S>(x_of(m), w.cols, w.group, scratch);
    sums[m] = scratch + prepared_floats(w.cols);
    scratch = sums[m] + kPanelRows;
  }
  dot_rows<S>(w, first, count, rows, x, sums);
  for (int m = 0; m < rows; ++m) {
    float* y = y_of(m);
    for_vectors(count, [&](int i, int lanes) {
      const Floats value = load_some(sums[m] + i, lanes);
      store_some(y + i, accumulate ? value + load_some(y + i, lanes) : value, lanes);
    });
  }
}

// y_of(m)[0..count) (+)= x_of(m) times rows [first, first + count) of w; count <= kPanelRows.
// scratch: the larger of kPanelFloats and kDotBatch * (prepared_floats(cols) + kPanelRows) floats.
template <class S, class XRow, class YRow>
inline void multiply_panel(const Stored& w, uint64_t first, int count, int rows, XRow&& x_of,
                           YRow&& y_of, bool accumulate, float* scratch) {
  if (rows <= kDotLimit) {
    for (int m = 0; m < rows; m += kDotBatch) {
      multiply_few<S>(
          w, first, count, rows - m < kDotBatch ? rows - m : kDotBatch,
          [&](int i) { return x_of(m + i); }, [&](int i) { return y_of(m + i); }, accumulate,
          scratch);
    }
    return;
  }
  for (int from = 0; from < w.cols; from += kPanelColumns) {
    const int to = from + kPanelColumns < w.cols ? from + kPanelColumns : w.cols;
    decode_panel<S>(w, first, count, from, to, scratch);
    tiles(
        rows, [&](int m) { return x_of(m) + from; }, to - from, scratch, kPanelRows, y_of, count,
        accumulate || from > 0);
  }
}

}  // namespace lily::cpu::LILY_ISA
