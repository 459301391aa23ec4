// Inside ops only: the checks that every operation makes before it records, how kernels are named
// and bound. Whatever passes here, a kernel may trust.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ops/ops.h"
#include "ops/tiles.h"

namespace lily::ops {

// One axis of an expected shape, with the word that the message uses for it.
struct Extent {
  const char* name;
  uint64_t value;
};
using Extents = std::initializer_list<Extent>;

// The checks of one operation, whose name opens every message.
class Check {
 public:
  explicit Check(const char* op) : op_(op) {}

  [[noreturn]] void fail(const std::string& message) const;
  // A count that fits the 32 bits of a param and is not zero.
  uint32_t count(const char* what, uint64_t value) const;
  // ... and that is at most what kernels have room for.
  uint32_t count(const char* what, uint64_t value, uint64_t most) const;
  void eps(float eps) const;

  void f32(const char* name, const Tensor& tensor, Extents shape) const;
  void u32(const char* name, const Tensor& tensor, Extents shape) const;
  // f32, bf16 or f16: what flows between kernels.
  void activation(const char* name, const Tensor& tensor, Extents shape) const;
  // f32 or bf16: the KV cache.
  void cache(const char* name, const Tensor& tensor, Extents shape) const;
  // Structs of params.h, `bytes` of them, in a tensor of u8 or u32.
  void record(const char* name, const Tensor& tensor, const char* of, uint64_t bytes) const;

  // One matrix [rows, cols], or experts.value of them when `experts` is given.
  void matrix(const char* name, const Matrix& matrix, Extent rows, Extent cols) const;
  void stack(const char* name, const Matrix& matrix, Extent experts, Extent rows,
             Extent cols) const;
  // Two matrices that one kernel reads by the same storage and group size.
  void same_storage(const char* name, const Matrix& matrix, const char* other_name,
                    const Matrix& other) const;

 private:
  void tensor(const char* name, const Tensor& tensor, Extents shape,
              std::initializer_list<DType> dtypes) const;
  void storage(const char* name, const Matrix& matrix) const;
  void view(const char* name, const View& view, uint64_t bytes, uint64_t alignment) const;

  const char* op_;
};

// "linear_gemv" and q4 -> "linear_gemv_q4".
std::string kernel_name(std::string_view kernel, Storage storage);
std::string kernel_name(std::string_view kernel, Storage first, Storage second);
std::string kernel_name(std::string_view kernel, DType dtype);
// "" for f32, else "_bf16": the variant of a kernel whose activations are not f32 is another
// kernel, so that a device which lacks it says so instead of misreading the bytes.
std::string activation_suffix(DType dtype);

// Bindings in kernel order; a matrix stands for weight, scales, biases.
class Bindings {
 public:
  Bindings& in(const Tensor& tensor);
  Bindings& in(const Matrix& matrix);
  Bindings& out(const Tensor& tensor);
  Bindings& inout(const Tensor& tensor);
  operator std::vector<Binding>() const { return bindings_; }

 private:
  std::vector<Binding> bindings_;
};

// Checks the tensors that all operations on one layer share, and fills the params from them.
AttentionParams check_attention(const Check& check, const AttentionTensors& layer,
                                uint32_t position);

}  // namespace lily::ops
