// How the factors of lane_tile.h come from memory: 8 x 8 matrices out of threadgroup memory, and
// vectors into it while other work goes on; and pairs of bfloats, which factors are made of. For
// kernels that know which lane holds which element.
//
//   load_matrices(to, from, offset)  four 8 x 8 matrices of 16-bit elements; lane l says where
//                                    row l % 8 of matrix l / 8 begins, at a multiple of 16 bytes,
//                                    and gets of matrix i, in to[i], row l / 4 at columns
//                                    2 (l % 4) and the next
//   load_turned_matrices(...)        the same of the transposed matrices
//   copy_ahead(to, from, there)      begins to copy 16 bytes; zeros where nothing is there
//   copy_eight_ahead(to, from)       begins to copy 8 bytes
//   close_copies()                   ends a group of copies
//   wait_for_copies<LEFT>()          until all of this thread's groups but the last LEFT are there;
//                                    other threads see them after a barrier
//   load_fresh(from)                 a word as the device's memory has it, past the core's cache
//   bfloat_pair(low, high)           both, rounded, in a word
//   fma_pairs(a, b, c)               a b + c of the pairs, each rounded once
#pragma once

#include "lane_tile.h"

#if defined(__NVPTX__)
#include "lane_memory_nvidia.h"
#else
#include "lane_memory_any.h"
#endif
