// Which expert and which rows a threadgroup of a grouped product takes: tiles are counted over all
// experts, an expert having as many as its rows need, so that almost no threadgroup is launched for
// nothing. Knows no product.
#pragma once

#include "kernel.h"

namespace lily {

struct ExpertTile {
  uint expert, begin, end;  // rows [begin, end) of the sorted order; begin == end: none left
};

enum : uint { kShareOfExperts = kMaxExperts / kLanes };  // of a lane

// The tile'th tile of `height` rows at most: an expert's rows are spread over as many tiles as they
// need, in bands of 16, which is what matrix units compute at once. Each lane adds up the tiles of
// its share of the experts, whose bounds it loads together.
inline ExpertTile find_tile(device const uint* offsets, uint experts, uint tile, uint height,
                            uint lane) {
  const uint share = (experts + kLanes - 1) / kLanes;
  const uint first = min(lane * share, experts), last = min(first + share, experts);
  uint bounds[kShareOfExperts + 1], count = 0;
  LILY_UNROLL
  for (uint i = 0; i <= kShareOfExperts; ++i) bounds[i] = offsets[min(first + i, last)];
  LILY_UNROLL
  for (uint i = 0; i < kShareOfExperts; ++i) {
    count += (bounds[i + 1] - bounds[i] + height - 1) / height;
  }
  uint before = simd_prefix_exclusive_sum(count);
  ExpertTile found{0, 0, 0};
  LILY_UNROLL
  for (uint i = 0; i < kShareOfExperts; ++i) {
    const uint tiles = (bounds[i + 1] - bounds[i] + height - 1) / height;
    if (tile >= before && tile - before < tiles) {
      const uint rows = bounds[i + 1] - bounds[i], band = min(height, 16u);
      const uint each = (rows + tiles * band - 1) / (tiles * band) * band;
      found.expert = first + i;
      found.begin = bounds[i] + (tile - before) * each;
      found.end = min(found.begin + each, bounds[i + 1]);
    }
    before += tiles;
  }
  // One lane found it, or none did: the sum is what it found.
  return {simd_sum(found.expert), simd_sum(found.begin), simd_sum(found.end)};
}

}  // namespace lily
