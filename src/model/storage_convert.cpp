// See storage_convert.h. A 4-bit code is an 8-bit code of the same value, and a group of 64 is two
// groups of 32 with the same scale and bias: nothing is rounded.
#include "model/storage_convert.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lily {
namespace {

bool is_quantised(Storage storage) { return storage == Storage::q4 || storage == Storage::q8; }

uint16_t u16_at(const std::byte* base, uint64_t index) {
  uint16_t value;
  std::memcpy(&value, base + 2 * index, sizeof value);
  return value;
}

uint32_t code_at(const StoredRows& from, uint64_t row, uint64_t col) {
  const std::byte* codes = from.weight + row * storage_row_bytes(from.storage, from.cols);
  if (from.storage == Storage::q8) return std::to_integer<uint32_t>(codes[col]);
  return std::to_integer<uint32_t>(codes[col / 2]) >> (4 * (col % 2)) & 15u;
}

float value_at(const StoredRows& from, uint64_t row, uint64_t col) {
  const uint64_t element = row * from.cols + col;
  switch (from.storage) {
    case Storage::f32: {
      float value;
      std::memcpy(&value, from.weight + 4 * element, sizeof value);
      return value;
    }
    case Storage::bf16: return bf16_to_f32(u16_at(from.weight, element));
    case Storage::q4:
    case Storage::q8: {
      const uint64_t group = element / from.group_size;
      const float scale = bf16_to_f32(u16_at(from.scales, group));
      const float bias = bf16_to_f32(u16_at(from.biases, group));
      return scale * static_cast<float>(code_at(from, row, col)) + bias;
    }
  }
  return 0;
}

void append(std::vector<std::byte>& to, const void* from, size_t bytes) {
  const std::byte* begin = static_cast<const std::byte*>(from);
  to.insert(to.end(), begin, begin + bytes);
}

}  // namespace

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

StorageFormat common_format(StorageFormat a, StorageFormat b) {
  if (a == b) return a;
  if (!is_quantised(a.storage) || !is_quantised(b.storage)) return {Storage::f32, 0};
  const bool small = a.storage == Storage::q4 && b.storage == Storage::q4;
  return {small ? Storage::q4 : Storage::q8, std::min(a.group_size, b.group_size)};
}

void append_rows(RowBytes& to, StorageFormat format, const StoredRows& from, uint64_t first,
                 uint64_t count) {
  const bool same_codes = format.storage == from.storage;
  const uint64_t row_bytes = storage_row_bytes(from.storage, from.cols);
  for (uint64_t row = first; row < first + count; ++row) {
    if (same_codes) {
      append(to.weight, from.weight + row * row_bytes, row_bytes);
    } else if (format.storage == Storage::q8) {
      for (uint64_t col = 0; col < from.cols; ++col) {
        to.weight.push_back(static_cast<std::byte>(code_at(from, row, col)));
      }
    } else {
      for (uint64_t col = 0; col < from.cols; ++col) {
        const float value = value_at(from, row, col);
        append(to.weight, &value, sizeof value);
      }
    }
    if (!is_quantised(format.storage)) continue;
    for (uint64_t col = 0; col < from.cols; col += format.group_size) {
      const uint64_t group = (row * from.cols + col) / from.group_size;
      append(to.scales, from.scales + 2 * group, 2);
      append(to.biases, from.biases + 2 * group, 2);
    }
  }
}

}  // namespace lily
