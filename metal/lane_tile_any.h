// The body of lane_tile.h in plain MSL: what the tests run. No Mac has such units, so that no
// host asks for it there.
#pragma once

namespace lily {

inline uint pick_bytes(uint a, uint b, uint selector) {
  uint picked = 0;
  LILY_UNROLL
  for (uint n = 0; n < 4; ++n) {
    const uint from = selector >> (4 * n) & 15;
    const uint byte = ((from & 4) == 0 ? a : b) >> (from % 4 * 8) & 0xFF;
    picked |= (from < 8 ? byte : byte < 128 ? 0u : 0xFFu) << (8 * n);
  }
  return picked;
}

inline int dot_codes(uint codes, uint factors) {
  int sum = 0;
  LILY_UNROLL
  for (uint n = 0; n < 4; ++n) {
    sum += int(codes >> (8 * n) & 0xFF) * (int(factors << (24 - 8 * n)) >> 24);
  }
  return sum;
}

inline float dot_halves(uint a, uint b) {
  return fma(as_type<float>(a << 16), as_type<float>(b << 16),
             as_type<float>(a & 0xFFFF0000u) * as_type<float>(b & 0xFFFF0000u));
}
inline int dot_words(uint a, uint b, int) { return dot_codes(a, b); }
inline float dot_words(uint a, uint b, float) { return dot_halves(a, b); }

inline uint lane_of_tile() { return simd_prefix_exclusive_sum(1u); }

template <class C>
inline void multiply_words(thread C (&c)[4], thread const uint (&a)[4], uint b0, uint b1) {
  const uint lane = lane_of_tile();
  for (uint t = 0; t < 4; ++t) {
    const ushort row = ushort(lane / 4 * 4 + t);
    const uint4 left = uint4(simd_shuffle(a[0], row), simd_shuffle(a[1], row),
                             simd_shuffle(a[2], row), simd_shuffle(a[3], row));
    LILY_UNROLL
    for (uint n = 0; n < 2; ++n) {
      const ushort column = ushort((lane % 4 * 2 + n) * 4 + t);
      const uint low = simd_shuffle(b0, column), high = simd_shuffle(b1, column);
      c[n] += dot_words(left.x, low, C()) + dot_words(left.z, high, C());
      c[2 + n] += dot_words(left.y, low, C()) + dot_words(left.w, high, C());
    }
  }
}
inline void multiply_codes(thread int (&c)[4], thread const uint (&a)[4], uint b0, uint b1) {
  multiply_words(c, a, b0, b1);
}
inline void multiply_halves(thread float (&c)[4], thread const uint (&a)[4], uint b0, uint b1) {
  multiply_words(c, a, b0, b1);
}

inline uint transpose_halves(uint word) {
  const uint lane = lane_of_tile(), column = lane / 4, row = lane % 4 * 2;
  const uint low = simd_shuffle(word, ushort(row * 4 + column / 2));
  const uint high = simd_shuffle(word, ushort(row * 4 + 4 + column / 2));
  return pick_bytes(low, high, column % 2 ? 0x7632 : 0x5410);
}

}  // namespace lily
