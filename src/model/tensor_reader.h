// One tensor of a checkpoint after another, checked and brought to where kernels can read it: big
// matrices in place, small vectors as f32. Collects every problem instead of stopping at the first.
// Knows file formats and storage, not which tensors a model has: that is weights.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "model/arena.h"
#include "model/checkpoint.h"
#include "ops/ops.h"

namespace lily {

// Where a Matrix lies in the files. `weight` is nullptr where a problem was found.
struct MatrixSource {
  const TensorInfo* weight = nullptr;
  const TensorInfo* scales = nullptr;
  const TensorInfo* biases = nullptr;
  Storage storage = Storage::f32;
  uint64_t experts = 1, rows = 0, cols = 0;
  uint64_t first_row = 0;    // of expert 0
  uint64_t stride_rows = 0;  // from expert to expert
  uint32_t group_size = 0;
};

// How deep a check goes: headers only, or also the values of the small vectors (NaN and Inf).
enum class CheckDepth : uint8_t { headers, values };

// What happens to a small vector on its way to f32.
enum class Transform : uint8_t { as_stored, one_plus, minus_exp };

class TensorReader {
 public:
  // Checks and counts, for a device of that weight alignment; allocates nothing.
  TensorReader(const Checkpoint& checkpoint, CheckDepth depth, size_t alignment_bytes);
  // Checks, and places everything on the device.
  TensorReader(const Checkpoint& checkpoint, Device& device);

  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }

  // `module`.weight [rows, cols] and, where it is quantised, .scales and .biases beside it.
  MatrixSource matrix(const std::string& module, uint64_t rows, uint64_t cols);
  // The same with an axis of experts in front.
  MatrixSource stack(const std::string& module, uint64_t experts, uint64_t rows, uint64_t cols);
  // HF's fused experts, a tensor without ".weight": [experts, all_rows, cols].
  MatrixSource fused_stack(const std::string& name, uint64_t experts, uint64_t all_rows,
                           uint64_t cols);

  // In place. An empty Matrix where a problem was found.
  Matrix place(const MatrixSource& source);
  // Two matrices that one kernel reads by one storage: in place where they agree, else both are
  // rewritten, exactly, in the smallest storage that holds either.
  std::pair<Matrix, Matrix> place_alike(const MatrixSource& a, const MatrixSource& b);

  // A vector or a small matrix, as f32 of `shape`; the file must have `file_shape`.
  Tensor small(const std::string& name, const std::vector<uint64_t>& file_shape,
               std::vector<uint64_t> shape, Transform transform);
  Tensor constant(const std::vector<float>& values);

  void problem(std::string line) { problems_.push_back(std::move(line)); }
  const std::vector<std::string>& problems() const { return problems_; }
  // Tensors that nothing asked for, sorted by name.
  std::vector<const TensorInfo*> untouched() const;

  const std::map<std::string, uint64_t>& format_bytes() const { return format_bytes_; }
  uint64_t parameters() const { return parameters_; }          // weights as the model counts them
  uint64_t in_place_bytes() const { return in_place_bytes_; }  // read where they are mapped
  uint64_t copied_bytes() const { return arena_.bytes(); }

 private:
  const TensorInfo* find(const std::string& name, const std::string& expected);
  bool check_shape(const TensorInfo& tensor, const std::vector<uint64_t>& expected);
  bool check_type(const TensorInfo& tensor, std::initializer_list<TensorType> allowed);
  MatrixSource plain(const std::string& name, std::vector<uint64_t> shape);
  MatrixSource quantised(const std::string& module, std::vector<uint64_t> shape);
  // `own_bytes` of the view are this matrix's; the halves of a fused tensor span each other.
  View view_of(const TensorInfo& tensor, uint64_t first_byte, uint64_t bytes, uint64_t own_bytes);
  std::vector<float> decode_small(const TensorInfo& tensor, Transform transform);
  void count(const TensorInfo& tensor, const char* format);

  const Checkpoint& checkpoint_;
  CheckDepth depth_;
  size_t alignment_bytes_;
  Arena arena_;
  std::vector<Buffer> shards_;
  std::set<const TensorInfo*> touched_;
  std::vector<std::string> problems_;
  std::map<std::string, uint64_t> format_bytes_;
  uint64_t parameters_ = 0;
  uint64_t in_place_bytes_ = 0;
};

// "[256, 1, 4]"
std::string shape_text(const std::vector<uint64_t>& shape);

}  // namespace lily
