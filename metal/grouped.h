// Which expert and which rows a threadgroup of a grouped product takes: tiles are counted over all
// experts, an expert having as many as its rows need, so that almost no threadgroup is launched for
// nothing. Knows no product.
#pragma once

#include "kernel.h"

namespace lily {

struct ExpertTile {
  uint expert, begin, end;  // rows [begin, end) of the sorted order; begin == end: none left
};

// The tile'th tile of `height` rows. Each lane adds up the tiles of its share of the experts.
inline ExpertTile find_tile(device const uint* offsets, uint experts, uint tile, uint height,
                            uint lane) {
  const uint share = (experts + kLanes - 1) / kLanes;
  const uint first = lane * share, last = min(first + share, experts);
  uint count = 0;
  for (uint e = first; e < last; ++e) {
    count += (offsets[e + 1] - offsets[e] + height - 1) / height;
  }
  const uint before = simd_prefix_exclusive_sum(count);
  const bool here = tile >= before && tile - before < count;
  ExpertTile found{0, 0, 0};
  if (here) {
    uint left = tile - before;
    for (uint e = first; e < last; ++e) {
      const uint tiles = (offsets[e + 1] - offsets[e] + height - 1) / height;
      if (left < tiles) {
        found.expert = e;
        found.begin = offsets[e] + left * height;
        found.end = min(found.begin + height, offsets[e + 1]);
        break;
      }
      left -= tiles;
    }
  }
  // One lane found it, or none did: the sum is what it found.
  return {simd_sum(found.expert), simd_sum(found.begin), simd_sum(found.end)};
}

}  // namespace lily
