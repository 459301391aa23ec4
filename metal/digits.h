// The GEMV of weights.h by integer matrix units, where multiply-adds and the decoding of codes
// would be slower than memory: activations become integers, codes stay what they are, and sums of
// their products are exact. Affine 4-bit and 8-bit rows with groups of 64; columns in whole slices
// of a simdgroup. Knows no layer.
//
// 64 activations share a power of two, and each is a multiple of it of up to 2^22: three digits of
// eight bits with signs. What is lost is what fp32 has less at the largest of the 64. The eight
// columns of a product of tiles are three digits of one group and three of the next. A simdgroup
// takes tiles of 16 rows over a slice of the columns; lane l holds rows l / 4 and l / 4 + 8.
#pragma once

#include "lane_tile.h"
#include "weights.h"

namespace lily {

enum : uint {
  kDigits = 3,
  kDigitGroup = 64,    // columns that share a power of two, and a scale of the weights
  kStepColumns = 128,  // of one product of tiles
  kPlaneBytes = 144,   // a digit of these columns; off 128, that planes lie in different banks
  kStepBytes = kDigits * kPlaneBytes,
  kTileCodes = 16  // rows of a tile
};

// Activations as digits, in threadgroup memory.
struct Digits {
  threadgroup uchar* planes;    // [steps][kDigits][kPlaneBytes]
  threadgroup float2* factors;  // [steps][2]: the power of two, and the sum of the 64
  threadgroup Sixteen* zeros;   // two
};

// Threadgroup memory in Sixteens for `steps` of each simdgroup.
constexpr uint digit_memory(uint steps, uint simdgroups) {
  return simdgroups * (steps * (kStepBytes / 16 + 1) + 2);
}
inline Digits digits_in(threadgroup Sixteen* memory, uint steps, uint simdgroups, uint simdgroup) {
  threadgroup Sixteen* mine = memory + simdgroup * digit_memory(steps, 1);
  threadgroup Sixteen* factors = mine + steps * (kStepBytes / 16);
  return {(threadgroup uchar*)mine, (threadgroup float2*)factors, factors + steps};
}

// --- Activations to digits

// The order of eight columns in a word for each half: as the codes of two words of `S` come.
template <class S>
inline uint2 order_bytes(uint low, uint high) {
  if (S::kBits == 8) return uint2(low, high);
  return uint2(pick_bytes(low, high, 0x6420), pick_bytes(low, high, 0x7531));
}

// Eight neighbours from column k of the slice. All lanes of a simdgroup call together, with the
// eights of four whole groups.
template <class S>
inline void stage_eight(thread const float (&x)[8], Digits digits, uint k) {
  // fmax, and pairs first: each step waits for the one before it. A NaN is lost here and stays in
  // the sum.
  float tops[4], sums[4];
  LILY_UNROLL
  for (uint i = 0; i < 4; ++i) {
    tops[i] = fmax(abs(x[i]), abs(x[i + 4])), sums[i] = x[i] + x[i + 4];
  }
  float top = fmax(fmax(tops[0], tops[1]), fmax(tops[2], tops[3]));
  float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  LILY_UNROLL
  for (ushort apart = 1; apart < 8; apart *= 2) {
    top = fmax(top, simd_shuffle_xor(top, apart));
    sum += simd_shuffle_xor(sum, apart);
  }
  // Powers of two by their exponents: `unit` is 2^-21 of the largest one in `top`. What is not
  // finite stays so in the sum.
  const uint exponent = max(as_type<uint>(top) & 0x7F800000u, 0x10000000u);
  const float unit = as_type<float>(exponent - (21u << 23));
  const float per_unit = as_type<float>((275u << 23) - exponent);
  uint4 low, high;  // three bytes of each: digits, 128 too large
  LILY_UNROLL
  for (uint i = 0; i < 4; ++i) {
    // In the mantissa of 1.5 * 2^23 an integer stands as it is.
    low[i] = as_type<uint>(fma(x[i], per_unit, 12582912.0f)) + 0x00408080u;
    high[i] = as_type<uint>(fma(x[i + 4], per_unit, 12582912.0f)) + 0x00408080u;
  }
  threadgroup uchar* to = digits.planes + k / kStepColumns * kStepBytes + k % kStepColumns;
  LILY_UNROLL
  for (uint d = 0; d < kDigits; ++d) {
    const uint pair = d == 0 ? 0x40u : d == 1 ? 0x51u : 0x62u;
    const uint2 word = order_bytes<S>(
        pick_bytes(pick_bytes(low[0], low[1], pair), pick_bytes(low[2], low[3], pair), 0x5410),
        pick_bytes(pick_bytes(high[0], high[1], pair), pick_bytes(high[2], high[3], pair), 0x5410));
    *(threadgroup uint2*)(to + d * kPlaneBytes) = word ^ 0x80808080u;
  }
  if (k % kDigitGroup == 0) digits.factors[k / kDigitGroup] = float2(unit, sum);
}

// Where eights come from: a row of activations, times a gain where there is one. The gain, a
// constant, is loaded ahead.
template <class X, bool GAIN>
struct RowOfX {
  device const X* x;
  device const float* gain;
  float4 ahead[2];

  void load_ahead(uint k) thread {
    if (GAIN) ahead[0] = load_four_of(gain + k), ahead[1] = load_four_of(gain + k + 4);
  }
  // Returns the sum of their squares before the gain.
  float load(uint k, thread float (&to)[8]) thread {
    float squares = 0.0f;
    LILY_UNROLL
    for (uint half_of = 0; half_of < 2; ++half_of) {
      const float4 four = load_four_of(x + k + 4 * half_of);
      if (GAIN) squares += dot(four, four);
      LILY_UNROLL
      for (uint i = 0; i < 4; ++i) {
        to[4 * half_of + i] = GAIN ? four[i] * ahead[half_of][i] : four[i];
      }
    }
    return squares;
  }
};

// A slice of STEPS steps from a column on; the first eight of the gain are loaded. Returns the
// lane's sum of squares.
template <class S, uint STEPS, class Source>
inline float stage_slice(thread Source& source, uint first, Digits digits, uint lane) {
  float squares = 0.0f;
  if (lane < 2) digits.zeros[lane] = uint4(0);
  LILY_UNROLL
  for (uint k = 0; k < STEPS * kStepColumns; k += 8 * kLanes) {
    float x[8];
    if (k != 0) source.load_ahead(first + k + lane * 8);
    squares += source.load(first + k + lane * 8, x);
    stage_eight<S>(x, digits, k + lane * 8);
  }
  return squares;
}

// --- Codes times digits

// A row of a matrix with groups of 64.
template <class S>
inline Row code_row(Stored matrix, ulong row) {
  const uint groups = matrix.cols / kDigitGroup;
  return {matrix.weight + row * (matrix.cols * S::kBits / 8), matrix.scales + row * groups,
          matrix.biases + row * groups};
}

// What a lane loads of TILES tiles and STEPS steps: 16 bytes of a row at a time, four lanes beside
// each other. A step takes two scales, the halves of a word.
template <class S, uint TILES, uint STEPS>
struct Codes {
  enum : uint { kLoads = STEPS * S::kBits / 4 };
  uint4 codes[2 * TILES][kLoads];
  uint scales[2 * TILES][STEPS], biases[2 * TILES][STEPS];

  // Row 16 * tile + l / 4 (+ 8) of `rows`, from a column on.
  template <class Rows>
  void load(thread const Rows& rows, uint column, uint lane) thread {
    LILY_UNROLL
    for (uint r = 0; r < 2 * TILES; ++r) {
      const Row row = rows.row(r * 8 + lane / 4);
      LILY_UNROLL
      for (uint i = 0; i < kLoads; ++i) {
        codes[r][i] =
            *(device const uint4*)(row.weight + column * S::kBits / 8 + i * 64 + lane % 4 * 16);
      }
      load_words(scales[r], (device const uchar*)(row.scales + column / kDigitGroup));
      load_words(biases[r], (device const uchar*)(row.biases + column / kDigitGroup));
    }
  }

  // The words of product i of a step; each has four in a row.
  void tile_words(uint tile, uint step, uint i, thread uint (&a)[4]) thread const {
    LILY_UNROLL
    for (uint r = 0; r < 2; ++r) {
      if (S::kBits == 4) {
        const uint word = codes[2 * tile + r][step][i];
        a[r] = word & 0x0F0F0F0Fu;
        a[2 + r] = word >> 4 & 0x0F0F0F0Fu;
      } else {
        const uint4 load = codes[2 * tile + r][step * S::kBits / 4 + (S::kBits / 4 - 1) * (i / 2)];
        a[r] = load[i % 2 * 2];
        a[2 + r] = load[i % 2 * 2 + 1];
      }
    }
  }
};

inline float bfloat_of(uint pair, bool second) {
  return as_type<float>(second ? pair & 0xFFFF0000u : pair << 16);
}

// sums[2 * tile + r] += codes . digits, the lane's part; over the four lanes of a row they add up.
template <class S, uint TILES, uint STEPS>
inline void multiply_digits(thread const Codes<S, TILES, STEPS>& codes, Digits digits, uint lane,
                            thread float (&sums)[2 * TILES]) {
  // Column n of the factors: digit n % 4 of the first group (n < 4) or the second. With 4 bits, 16
  // bytes of a row are columns of one group, and lanes differ in it; with 8, products do.
  const uint t = lane % 4, digit = lane / 4 % 4, second = lane / 16;
  threadgroup const uchar* from[2];
  uint pitch[2];
  LILY_UNROLL
  for (uint h = 0; h < 2; ++h) {
    const bool there = digit < kDigits && second == (S::kBits == 4 ? t / 2 : h);
    const uint at = digit * kPlaneBytes + (S::kBits == 4 ? t * 32 + h * 16 : h * 64 + t * 16);
    from[h] = there ? digits.planes + at : (threadgroup const uchar*)digits.zeros;
    pitch[h] = there ? uint(kStepBytes) : 0;
  }
  // Products wait for those that they add to, so that all tiles and steps take turns.
  int c[TILES][STEPS][4];
  LILY_UNROLL
  for (uint i = 0; i < TILES * STEPS * 4; ++i) c[i / 4 / STEPS][i / 4 % STEPS][i % 4] = 0;
  LILY_UNROLL
  for (uint h = 0; h < 2; ++h) {
    uint4 b[STEPS];
    LILY_UNROLL
    for (uint step = 0; step < STEPS; ++step) {
      b[step] = *(threadgroup const uint4*)(from[h] + step * pitch[h]);
    }
    LILY_UNROLL
    for (uint i = 0; i < 2; ++i) {
      LILY_UNROLL
      for (uint step = 0; step < STEPS; ++step) {
        LILY_UNROLL
        for (uint tile = 0; tile < TILES; ++tile) {
          uint a[4];
          codes.tile_words(tile, step, 2 * h + i, a);
          multiply_codes(c[tile][step], a, b[step][2 * i], b[step][2 * i + 1]);
        }
      }
    }
  }
  const float first_digit = t % 2 ? 65536.0f : 1.0f, with_bias = t % 2 ? 0.0f : 1.0f;
  LILY_UNROLL
  for (uint step = 0; step < STEPS; ++step) {
    const float2 factors = digits.factors[step * 2 + t / 2];
    const float low = factors.x * first_digit, high = factors.x * 256.0f;
    const float sum = factors.y * with_bias;
    LILY_UNROLL
    for (uint r = 0; r < 2 * TILES; ++r) {
      const float scale = bfloat_of(codes.scales[r][step], t >= 2);
      const float bias = bfloat_of(codes.biases[r][step], t >= 2);
      thread const int (&of)[4] = c[r / 2][step];
      const float dot = fma(float(of[r % 2 * 2]), low, float(of[r % 2 * 2 + 1]) * high);
      sums[r] = fma(scale, dot, fma(bias, sum, sums[r]));
    }
  }
}

// Sums of the four lanes of each row, to `to`.
template <uint TILES>
inline void leave_sums(thread const float (&sums)[2 * TILES], threadgroup float* to, uint lane) {
  LILY_UNROLL
  for (uint r = 0; r < 2 * TILES; ++r) {
    float sum = sums[r] + simd_shuffle_xor(sums[r], 1);
    sum += simd_shuffle_xor(sum, 2);
    if (lane % 4 == 0) to[r * 8 + lane / 4] = sum;
  }
}

// --- The GEMV of a threadgroup, whose simdgroups take slices of the columns, one each at most

// begin(), LILY_WAIT_FOR_STEP(), stage(), multiply(), finish(); all threads must call them.
template <class S, uint TILES, uint STEPS, uint SIMDGROUPS>
struct DigitGemv {
  enum : uint {
    kRows = TILES * kTileCodes,
    kSlice = STEPS * kStepColumns,
    kMemory = digit_memory(STEPS, SIMDGROUPS),  // Sixteens
    kPitch = kRows + 1,                         // what a simdgroup leaves: its rows, and squares
    kPartial = SIMDGROUPS * kPitch              // floats
  };
  Codes<S, TILES, STEPS> codes;
  Digits digits;
  threadgroup float* partial;  // [kPartial]
  uint column, lane, simdgroup;
  bool has_slice;
  float squares;  // the lane's, of the staged slice

  // memory: [kMemory], partial: [kPartial]
  void begin(threadgroup Sixteen* memory, threadgroup float* partial_, uint cols, uint lane_,
             uint simdgroup_) thread {
    lane = lane_, simdgroup = simdgroup_, partial = partial_;
    digits = digits_in(memory, STEPS, SIMDGROUPS, simdgroup);
    column = simdgroup * kSlice;
    has_slice = column < cols;
  }
  // Weights, and a gain: what no kernel of a step writes.
  template <class Rows>
  void load_codes(thread const Rows& rows) thread {
    if (has_slice) codes.load(rows, column, lane);
  }
  template <class Source>
  void load_gain(thread Source& source) thread {
    if (has_slice) source.load_ahead(column + lane * 8);
  }
  // x becomes digits.
  template <class Source>
  void stage(thread Source& source) thread {
    squares = 0.0f;
    if (has_slice) squares = stage_slice<S, STEPS>(source, column, digits, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  // Rows times the staged slice: on thread r < kRows, row r, over all simdgroups.
  float multiply(uint thread_index) thread {
    float sums[2 * TILES];
    LILY_UNROLL
    for (uint r = 0; r < 2 * TILES; ++r) sums[r] = 0.0f;
    if (has_slice) multiply_digits<S, TILES, STEPS>(codes, digits, lane, sums);
    leave_sums<TILES>(sums, partial + simdgroup * kPitch, lane);
    squares = simd_sum(squares);
    if (lane == 0) partial[simdgroup * kPitch + kRows] = squares;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return thread_index < kRows ? gather(thread_index) : 0.0f;
  }
  // 1 / rms of x, after multiply().
  float rms_factor(uint cols, float eps) thread const {
    return precise::rsqrt(gather(kRows) / float(cols) + eps);
  }
  float gather(uint at) thread const {
    float total = 0.0f;
    LILY_UNROLL
    for (uint s = 0; s < SIMDGROUPS; ++s) total += partial[s * kPitch + at];
    return total;
  }
};

}  // namespace lily
