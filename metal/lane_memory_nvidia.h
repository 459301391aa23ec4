// The body of lane_memory.h on NVIDIA (PTX ISA: ldmatrix, cp.async, cvt and fma of bf16x2). Read by
// clang for PTX only.
#pragma once

namespace lily {

inline uint shared_address_of(threadgroup const void* at) { return uint(ulong(at)); }

inline void load_matrices(thread uint (&to)[4], threadgroup const bfloat* from, uint offset) {
  __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(shared_address_of(from + offset))
                   : "memory");
}
inline void load_turned_matrices(thread uint (&to)[4], threadgroup const bfloat* from,
                                 uint offset) {
  __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(shared_address_of(from + offset))
                   : "memory");
}

template <class T>
inline void copy_ahead(threadgroup T* to, device const T* from, bool there) {
  __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address_of(to)),
                   "l"(from), "r"(there ? 16 : 0)
                   : "memory");
}
inline void copy_eight_ahead(threadgroup uint2* to, device const uint2* from) {
  __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address_of(to)),
                   "l"(from)
                   : "memory");
}
inline void close_copies() { __asm__ volatile("cp.async.commit_group;" ::: "memory"); }
template <uint LEFT>
inline void wait_for_copies() {
  __asm__ volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

inline float load_fresh(device const float* from) {
  float value;
  __asm__ volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}

inline uint bfloat_pair(float low, float high) {
  uint pair;
  __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
inline uint fma_pairs(uint a, uint b, uint c) {
  uint sum;
  __asm__("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

}  // namespace lily
