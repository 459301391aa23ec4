// Where tensors come from: a device, or nowhere when only their bytes are to be known. The same
// code that allocates therefore states what it would allocate, and a plan cannot drift from the
// truth.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "device/device.h"
#include "ops/ops.h"

namespace lily {

class Arena {
 public:
  // Of what every GPU accepts as the offset of a binding.
  static constexpr uint64_t kAlignment = 256;

  // nullptr: count only; tensors have a size but no memory.
  explicit Arena(Device* device) : device_(device) {}

  bool counts_only() const { return device_ == nullptr; }
  uint64_t bytes() const { return bytes_; }

  View view(uint64_t bytes) {
    bytes_ += bytes;
    return counts_only() ? View(nullptr, 0, bytes) : View(device_->allocate(bytes), 0, bytes);
  }
  Tensor tensor(DType dtype, std::vector<uint64_t> shape) {
    Tensor tensor{{}, dtype, std::move(shape)};
    tensor.view = view(tensor.elements() * dtype_bytes(dtype));
    return tensor;
  }
  // One struct of params.h, or several in a row.
  template <class Record>
  Tensor record(uint64_t count = 1) {
    return tensor(DType::u32, {count * (sizeof(Record) / sizeof(uint32_t))});
  }
  // The same in memory that the host reads too.
  template <class Record>
  Tensor shared_record() {
    Tensor tensor{{}, DType::u32, {sizeof(Record) / sizeof(uint32_t)}};
    bytes_ += sizeof(Record);
    tensor.view = counts_only() ? View(nullptr, 0, sizeof(Record))
                                : View(device_->allocate_shared(sizeof(Record)));
    return tensor;
  }
  template <class T>
  View filled(std::span<const T> values) {
    View memory = view(values.size_bytes());
    if (!counts_only()) device_->write(memory, values.data(), values.size_bytes());
    return memory;
  }

 private:
  Device* device_;
  uint64_t bytes_ = 0;
};

}  // namespace lily
