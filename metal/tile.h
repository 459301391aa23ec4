// Matrix work of a simdgroup, in one vocabulary for Apple's simdgroup matrices (8 x 8), the matrix
// units of M5 (tensor ops, 16 x 32 x 16) and NVIDIA's mma.sync (16 x 8 x 16). No kernel knows which
// lane holds which element. T is bfloat or half; sums are fp32.
//
//   Left<T, M, K>        rows of the left factor, in registers
//     load(from, stride)                 from threadgroup memory [M, stride]
//   Sums<M, N>           M x N sums, in registers
//     clear()
//     store_band(band, column, columns, to, stride)   kTileRows rows of some columns into
//                                        threadgroup memory; constants, in an unrolled loop
//     scale_rows(factors, rows)          each row times factors[row]
//   multiply_nt(sums, left, right, stride)   sums += left right^T,  right [N, K] in threadgroup
//   memory multiply_nn(sums, left, right, stride)   sums += left right,    right [K, N] in
//   threadgroup memory ElementRows / element_rows(...)      which rows a lane's elements belong to
//
// M a multiple of kTileRows, N and K multiples of 16. All lanes of a simdgroup call together. Rows
// of threadgroup memory begin at multiples of 16 bytes.
#pragma once

#include "kernel.h"

#if defined(__NVPTX__)
#include "tile_nvidia.h"
#elif defined(LILY_TENSOR_OPS)
#include "tile_tensor_ops.h"
#else
#include "tile_apple.h"
#endif
