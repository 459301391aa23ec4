// The words of every refusal, and the few rules that all operations share. Knows no kernel.
#include "ops/check.h"

#include <cmath>

#include "core/error.h"

namespace lily::ops {
namespace {

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    text += (axis ? ", " : "") + std::to_string(shape[axis]);
  }
  return text + "]";
}

std::string expected_text(Extents shape) {
  std::string values, names;
  for (const Extent& extent : shape) {
    values += (values.empty() ? "" : ", ") + std::to_string(extent.value);
    names += (names.empty() ? "" : ", ") + std::string(extent.name);
  }
  return "[" + values + "] (" + names + ")";
}

bool same_shape(const std::vector<uint64_t>& shape, Extents expected) {
  if (shape.size() != expected.size()) return false;
  size_t axis = 0;
  for (const Extent& extent : expected) {
    if (shape[axis++] != extent.value) return false;
  }
  return true;
}

}  // namespace

void Check::fail(const std::string& message) const {
  throw InvalidInput(std::string(op_) + ": " + message);
}

uint32_t Check::count(const char* what, uint64_t value) const {
  if (value == 0 || value > UINT32_MAX) {
    fail(std::string(what) + " is " + std::to_string(value) + ", expected 1 to 4,294,967,295");
  }
  return static_cast<uint32_t>(value);
}

uint32_t Check::count(const char* what, uint64_t value, uint64_t most) const {
  if (value > most) {
    fail(std::string(what) + " is " + std::to_string(value) + ", expected at most " +
         std::to_string(most));
  }
  return count(what, value);
}

void Check::eps(float eps) const {
  if (!(std::isfinite(eps) && eps >= 0)) {
    fail("eps is " + std::to_string(eps) + ", expected a finite number of at least 0");
  }
}

void Check::f32(const char* name, const Tensor& given, Extents shape) const {
  tensor(name, given, shape, {DType::f32});
}
void Check::u32(const char* name, const Tensor& given, Extents shape) const {
  tensor(name, given, shape, {DType::u32});
}
void Check::activation(const char* name, const Tensor& given, Extents shape) const {
  tensor(name, given, shape, {DType::f32, DType::bf16, DType::f16});
}
void Check::cache(const char* name, const Tensor& given, Extents shape) const {
  tensor(name, given, shape, {DType::f32, DType::bf16});
}

void Check::record(const char* name, const Tensor& given, const char* of, uint64_t bytes) const {
  if (given.dtype != DType::u8 && given.dtype != DType::u32) {
    fail(std::string(name) + " is " + dtype_name(given.dtype) + ", expected u8 or u32 (" + of +
         ")");
  }
  const uint64_t held = given.elements() * dtype_bytes(given.dtype);
  if (held != bytes) {
    fail(std::string(name) + " has " + grouped(held) + " bytes, expected " + grouped(bytes) + " (" +
         of + ")");
  }
  view(name, given.view, bytes, sizeof(uint32_t));
}

void Check::tensor(const char* name, const Tensor& given, Extents shape,
                   std::initializer_list<DType> dtypes) const {
  std::string allowed;
  bool fits = false;
  for (DType dtype : dtypes) {
    fits = fits || given.dtype == dtype;
    allowed += (allowed.empty() ? "" : " or ") + std::string(dtype_name(dtype));
  }
  if (!fits) {
    fail(std::string(name) + " is " + dtype_name(given.dtype) + ", expected " + allowed);
  }
  if (!same_shape(given.shape, shape)) {
    fail(std::string(name) + " has shape " + shape_text(given.shape) + ", expected " +
         expected_text(shape));
  }
  uint64_t bytes = dtype_bytes(given.dtype);
  for (const Extent& extent : shape) {
    // Each extent is a param or a product of two; three of them can pass 64 bits.
    if (__builtin_mul_overflow(bytes, extent.value, &bytes)) {
      fail(std::string(name) + " of shape " + shape_text(given.shape) + " is too large to address");
    }
  }
  if (bytes == 0) fail(std::string(name) + " is empty: shape " + shape_text(given.shape));
  view(name, given.view, bytes, dtype_bytes(given.dtype));
}

void Check::view(const char* name, const View& view, uint64_t bytes, uint64_t alignment) const {
  if (!view) fail(std::string(name) + " has no memory");
  const uint64_t whole = view.buffer->bytes();
  if (view.offset_bytes > whole || view.size_bytes > whole - view.offset_bytes) {
    fail(std::string(name) + " leaves its buffer of " + grouped(whole) +
         " bytes: " + grouped(view.size_bytes) + " bytes at " + grouped(view.offset_bytes));
  }
  if (view.size_bytes < bytes) {
    fail(std::string(name) + " has " + grouped(view.size_bytes) + " bytes of memory, expected " +
         grouped(bytes));
  }
  if (view.offset_bytes % alignment != 0) {
    fail(std::string(name) + " starts at byte " + grouped(view.offset_bytes) +
         ", expected a multiple of " + std::to_string(alignment));
  }
}

void Check::matrix(const char* name, const Matrix& given, Extent rows, Extent cols) const {
  if (given.experts != 1 || given.rows != rows.value || given.cols != cols.value) {
    if (given.experts != 1) return stack(name, given, {"one matrix", 1}, rows, cols);
    fail(std::string(name) + " has shape " + shape_text({given.rows, given.cols}) + ", expected " +
         expected_text({rows, cols}));
  }
  storage(name, given);
}

void Check::stack(const char* name, const Matrix& given, Extent experts, Extent rows,
                  Extent cols) const {
  if (given.experts != experts.value || given.rows != rows.value || given.cols != cols.value) {
    fail(std::string(name) + " has shape " + shape_text({given.experts, given.rows, given.cols}) +
         ", expected " + expected_text({experts, rows, cols}));
  }
  storage(name, given);
}

void Check::storage(const char* name, const Matrix& given) const {
  const std::string matrix = name;
  const bool quantised = given.storage == Storage::q4 || given.storage == Storage::q8;
  count((matrix + "'s number of experts").c_str(), given.experts);
  count((matrix + "'s number of rows").c_str(), given.rows);
  count((matrix + "'s number of columns").c_str(), given.cols);
  if (given.experts > 1 && given.expert_stride_rows < given.rows) {
    fail(matrix + " has " + grouped(given.expert_stride_rows) + " rows between experts, expected " +
         grouped(given.rows) + " or more");
  }
  if (given.experts > 1) count((matrix + "'s expert stride").c_str(), given.expert_stride_rows);
  if (given.cols > kMaxColumns) {
    fail(matrix + " has " + grouped(given.cols) + " columns, expected at most " +
         grouped(kMaxColumns));
  }
  const uint64_t group = given.group_size;
  if (quantised && group != 32 && group != 64 && group != 128) {
    fail(matrix + " has groups of " + std::to_string(group) + ", expected 32, 64 or 128");
  }
  if (quantised && given.cols % group != 0) {
    fail(matrix + " has " + grouped(given.cols) + " columns, expected a multiple of its group of " +
         std::to_string(group));
  }
  if (!quantised && (group != 0 || given.scales || given.biases)) {
    fail(matrix + " is " + storage_name(given.storage) + " but has scales, biases or a group size");
  }
  const uint64_t spanned = (given.experts - 1) * given.expert_stride_rows + given.rows;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(spanned, storage_row_bytes(given.storage, given.cols), &bytes)) {
    fail(matrix + " is too large to address");
  }
  // Of any alignment: files give none, and the device that wrapped one said what it needs.
  view((matrix + ".weight").c_str(), given.weight, bytes, 1);
  if (!quantised) return;
  const uint64_t factor_bytes = spanned * (given.cols / group) * 2;
  view((matrix + ".scales").c_str(), given.scales, factor_bytes, 1);
  view((matrix + ".biases").c_str(), given.biases, factor_bytes, 1);
}

void Check::same_storage(const char* name, const Matrix& matrix, const char* other_name,
                         const Matrix& other) const {
  if (matrix.storage == other.storage && matrix.group_size == other.group_size) return;
  auto text = [](const Matrix& of) {
    return storage_name(of.storage) +
           (of.group_size ? " in groups of " + std::to_string(of.group_size) : std::string());
  };
  fail(std::string(name) + " is " + text(matrix) + ", expected " + text(other) + " as " +
       other_name);
}

std::string kernel_name(std::string_view kernel, Storage storage) {
  return std::string(kernel) + "_" + storage_name(storage);
}
std::string kernel_name(std::string_view kernel, Storage first, Storage second) {
  return kernel_name(kernel, first) + "_" + storage_name(second);
}
std::string kernel_name(std::string_view kernel, DType dtype) {
  return std::string(kernel) + "_" + dtype_name(dtype);
}
std::string activation_suffix(DType dtype) {
  return dtype == DType::f32 ? "" : std::string("_") + dtype_name(dtype);
}

Bindings& Bindings::in(const Tensor& tensor) {
  bindings_.push_back(lily::in(tensor.view));
  return *this;
}
Bindings& Bindings::in(const Matrix& matrix) {
  // What is not quantised has neither; its kernels do not look, but GPUs want every place taken.
  for (const View* view : {&matrix.weight, &matrix.scales, &matrix.biases}) {
    bindings_.push_back(lily::in(*view ? *view : matrix.weight));
  }
  return *this;
}
Bindings& Bindings::out(const Tensor& tensor) {
  bindings_.push_back(lily::out(tensor.view));
  return *this;
}
Bindings& Bindings::inout(const Tensor& tensor) {
  bindings_.push_back(lily::inout(tensor.view));
  return *this;
}

}  // namespace lily::ops
