// The body of lane_memory.h in plain MSL: what the tests run. Copies are there at once.
#pragma once

namespace lily {

inline void load_matrices(thread uint (&to)[4], threadgroup const bfloat* from, uint offset) {
  const uint lane = lane_of_tile();
  LILY_UNROLL
  for (uint i = 0; i < 4; ++i) {
    const uint row = simd_shuffle(offset, ushort(i * 8 + lane / 4));
    to[i] = *(threadgroup const uint*)(from + row + lane % 4 * 2);
  }
}
inline void load_turned_matrices(thread uint (&to)[4], threadgroup const bfloat* from,
                                 uint offset) {
  const uint lane = lane_of_tile();
  LILY_UNROLL
  for (uint i = 0; i < 4; ++i) {
    const uint low = simd_shuffle(offset, ushort(i * 8 + lane % 4 * 2));
    const uint high = simd_shuffle(offset, ushort(i * 8 + lane % 4 * 2 + 1));
    to[i] = uint(as_type<ushort>(from[low + lane / 4])) |
            uint(as_type<ushort>(from[high + lane / 4])) << 16;
  }
}

template <class T>
inline void copy_ahead(threadgroup T* to, device const T* from, bool there) {
  *(threadgroup uint4*)to = there ? *(device const uint4*)from : uint4(0u);
}
inline void copy_eight_ahead(threadgroup uint2* to, device const uint2* from) { *to = *from; }
inline void close_copies() {}
template <uint LEFT>
inline void wait_for_copies() {}

inline float load_fresh(device const float* from) { return *from; }

inline uint bfloat_pair(float low, float high) {
  return uint(as_type<ushort>(bfloat(low))) | uint(as_type<ushort>(bfloat(high))) << 16;
}
inline uint fma_pairs(uint a, uint b, uint c) {
  return bfloat_pair(fma(as_type<float>(a << 16), as_type<float>(b << 16), as_type<float>(c << 16)),
                     fma(as_type<float>(a & 0xFFFF0000u), as_type<float>(b & 0xFFFF0000u),
                         as_type<float>(c & 0xFFFF0000u)));
}

}  // namespace lily
