// Matrix work of a simdgroup where a kernel knows which lane holds which element, so that factors
// go from device memory into registers and no further: NVIDIA's mma.sync. A tile has 16 rows and 8
// columns of fp32 or integer sums: lane l holds row l / 4 (c[0], c[1]) and row l / 4 + 8 (c[2],
// c[3]) at columns 2 (l % 4) and the next. Of the left factor it holds words of row l / 4 (a[0],
// a[2]) and row l / 4 + 8 (a[1], a[3]); of the right factor, words of column l / 4. A word is
// neighbours along the sum: four bytes or two 16-bit floats, from 4 (l % 4) or 2 (l % 4) on; a[2],
// a[3] and b1 are 16 bytes further on.
//
//   multiply_codes(c, a, b0, b1)   c += a b,  a [16, 32] of uchar, b [32, 8] of char
//   multiply_halves(c, a, b0, b1)  c += a b,  a [16, 16], b [16, 8] of bfloat
//   transpose_halves(word)         of 8 x 8 16-bit elements, lane l holds row l / 4 at columns 2 (l
//   %
//                                  4) and the next, and gets the same place of the transpose
//   pick_bytes(a, b, selector)     hexadecimal digit n of the selector is which byte of (b a), of
//   8,
//                                  becomes byte n; 8 more: only its sign does, in all bits
//
// All lanes of a simdgroup call together. Knows no kernel.
#pragma once

#include "kernel.h"

#if defined(__NVPTX__)
#include "lane_tile_nvidia.h"
#else
#include "lane_tile_any.h"
#endif
