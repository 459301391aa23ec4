// How decode attention cuts a context into parts, which a second kernel merges. Knows no kernel.
#pragma once

#include "kernel.h"

namespace lily {

inline float lowest() { return -3.0e38f; }  // finite: no infinity ever enters the arithmetic

// Tokens of a part, but for the last, when `length` are in the context.
inline uint part_size(uint length) {
  return max((length + kAttentionMaxSplits - 1) / kAttentionMaxSplits, uint(kAttentionSplitTokens));
}
// Tokens of part `split` when `length` tokens are in the context. Depends on the length alone, so
// that every device cuts alike.
struct Part {
  uint begin, end;
};
inline Part part_of(uint length, uint split) {
  const uint size = part_size(length);
  const uint begin = min(split * size, length);
  return {begin, min(begin + size, length)};
}

}  // namespace lily
