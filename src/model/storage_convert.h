// Exact rewriting of stored matrices: into f32, or of 4-bit codes into 8-bit codes and of wide
// groups into narrow ones. For the rare checkpoint whose neighbours are stored differently. Knows
// bytes only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/ops.h"

namespace lily {

// Host addresses of a matrix in a file, rows side by side (a file's tensors have any alignment).
struct StoredRows {
  Storage storage;
  uint32_t group_size;
  uint64_t cols;
  const std::byte* weight;
  const std::byte* scales;
  const std::byte* biases;
};

// The storage and group size that hold both without loss.
struct StorageFormat {
  Storage storage;
  uint32_t group_size;
  bool operator==(const StorageFormat&) const = default;
};
StorageFormat common_format(StorageFormat a, StorageFormat b);

// Bytes of `rows` rows in a format, as three arrays.
struct RowBytes {
  std::vector<std::byte> weight, scales, biases;
};
// Rows [first, first + count) of `from` are appended to `to` in `format`, which must hold them.
void append_rows(RowBytes& to, StorageFormat format, const StoredRows& from, uint64_t first,
                 uint64_t count);

float bf16_to_f32(uint16_t bits);

}  // namespace lily
