// What a tensor and a stored matrix are, in elements and bytes. Knows no operation and no device.
#include <string>

#include "core/error.h"
#include "ops/ops.h"

namespace lily {

uint64_t Tensor::elements() const {
  uint64_t product = 1;
  for (uint64_t extent : shape) product *= extent;
  return product;
}

Tensor Tensor::rows(uint64_t begin, uint64_t end) const {
  if (begin > end || end > dim(0) || shape.empty()) {
    throw InvalidInput("tensor: rows [" + std::to_string(begin) + ", " + std::to_string(end) +
                       ") of " + std::to_string(shape.empty() ? 0 : shape[0]) + " rows");
  }
  const uint64_t row_bytes = shape[0] == 0 ? 0 : elements() / shape[0] * dtype_bytes(dtype);
  Tensor part{view.slice(begin * row_bytes, (end - begin) * row_bytes), dtype, shape};
  part.shape[0] = end - begin;
  return part;
}

const char* storage_name(Storage storage) {
  switch (storage) {
    case Storage::f32: return "f32";
    case Storage::bf16: return "bf16";
    case Storage::q4: return "q4";
    case Storage::q8: return "q8";
  }
  return "?";
}

uint64_t storage_row_bytes(Storage storage, uint64_t cols) {
  switch (storage) {
    case Storage::f32: return cols * 4;
    case Storage::bf16: return cols * 2;
    case Storage::q4: return (cols + 1) / 2;
    case Storage::q8: return cols;
  }
  return 0;
}

}  // namespace lily
