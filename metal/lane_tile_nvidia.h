// The body of lane_tile.h on NVIDIA (PTX ISA, "Matrix fragments for mma.m16n8k32" and "m16n8k16",
// movmatrix, prmt). Read by clang for PTX only.
#pragma once

namespace lily {

inline uint pick_bytes(uint a, uint b, uint selector) { return __nvvm_prmt(a, b, selector); }

inline void multiply_codes(thread int (&c)[4], thread const uint (&a)[4], uint b0, uint b1) {
  __asm__(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
inline void multiply_halves(thread float (&c)[4], thread const uint (&a)[4], uint b0, uint b1) {
  __asm__(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
inline uint transpose_halves(uint word) {
  uint transposed;
  __asm__ volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
}

}  // namespace lily
