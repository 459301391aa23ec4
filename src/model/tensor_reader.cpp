// See tensor_reader.h. Two passes use it: one without a device that finds all problems and sizes,
// and one with a device that places what the first pass found sound.
#include "model/tensor_reader.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "model/storage_convert.h"

namespace lily {
namespace {

constexpr const char* kFloatTypes = "BF16 or F32";

std::vector<uint64_t> with_last(std::vector<uint64_t> shape, uint64_t last) {
  shape.back() = last;
  return shape;
}

uint64_t product(const std::vector<uint64_t>& shape) {
  uint64_t elements = 1;
  for (const uint64_t extent : shape) elements *= extent;
  return elements;
}

StorageFormat format_of(const MatrixSource& source) { return {source.storage, source.group_size}; }

// Rows from the first of expert 0 to the last of the last expert.
uint64_t spanned_rows(const MatrixSource& source) {
  return (source.experts - 1) * source.stride_rows + source.rows;
}

Matrix shape_of(const MatrixSource& source) {
  Matrix matrix;
  matrix.storage = source.storage;
  matrix.experts = source.experts;
  matrix.rows = source.rows;
  matrix.cols = source.cols;
  matrix.expert_stride_rows = source.stride_rows;
  matrix.group_size = source.group_size;
  return matrix;
}

}  // namespace

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  }
  return text + "]";
}

TensorReader::TensorReader(const Checkpoint& checkpoint, CheckDepth depth, size_t alignment_bytes)
    : checkpoint_(checkpoint), depth_(depth), alignment_bytes_(alignment_bytes), arena_(nullptr) {}

TensorReader::TensorReader(const Checkpoint& checkpoint, Device& device)
    : checkpoint_(checkpoint),
      depth_(CheckDepth::values),
      alignment_bytes_(device.weight_alignment_bytes()),
      arena_(&device) {
  for (const auto& file : checkpoint_.shards()) {
    shards_.push_back(device.wrap(file, file->data(), file->size()));
  }
}

const TensorInfo* TensorReader::find(const std::string& name, const std::string& expected) {
  const TensorInfo* tensor = checkpoint_.find(name);
  if (tensor == nullptr) {
    problem("missing: " + name + " (" + expected + ")");
  } else {
    touched_.insert(tensor);
  }
  return tensor;
}

bool TensorReader::check_shape(const TensorInfo& tensor, const std::vector<uint64_t>& expected) {
  if (tensor.shape == expected) return true;
  problem("wrong shape: " + tensor.name + " is " + tensor.shape_text() + ", expected " +
          shape_text(expected));
  return false;
}

bool TensorReader::check_type(const TensorInfo& tensor, std::initializer_list<TensorType> allowed) {
  std::string names;
  for (const TensorType type : allowed) {
    if (tensor.dtype == type) return true;
    names += names.empty() ? "" : " or ";
    names += type == TensorType::bf16 ? "BF16" : type == TensorType::f32 ? "F32" : "U32";
  }
  problem("wrong dtype: " + tensor.name + " is " + printable(tensor.dtype_name) + ", expected " +
          names);
  return false;
}

void TensorReader::count(const TensorInfo& tensor, const char* format) {
  format_bytes_[format] += tensor.bytes;
}

MatrixSource TensorReader::matrix(const std::string& module, uint64_t rows, uint64_t cols) {
  MatrixSource source = has(module + ".scales") ? quantised(module, {rows, cols})
                                                : plain(module + ".weight", {rows, cols});
  source.rows = source.stride_rows = rows;
  return source;
}

MatrixSource TensorReader::stack(const std::string& module, uint64_t experts, uint64_t rows,
                                 uint64_t cols) {
  MatrixSource source = has(module + ".scales") ? quantised(module, {experts, rows, cols})
                                                : plain(module + ".weight", {experts, rows, cols});
  source.experts = experts;
  source.rows = source.stride_rows = rows;
  return source;
}

MatrixSource TensorReader::fused_stack(const std::string& name, uint64_t experts, uint64_t all_rows,
                                       uint64_t cols) {
  MatrixSource source = plain(name, {experts, all_rows, cols});
  source.experts = experts;
  source.rows = source.stride_rows = all_rows;
  return source;
}

MatrixSource TensorReader::plain(const std::string& name, std::vector<uint64_t> shape) {
  MatrixSource source;
  source.cols = shape.back();
  const TensorInfo* weight = find(name, kFloatTypes + (" " + shape_text(shape)));
  if (weight == nullptr) return source;
  const bool typed = check_type(*weight, {TensorType::bf16, TensorType::f32});
  if (!check_shape(*weight, shape) || !typed) return source;
  source.weight = weight;
  source.storage = weight->dtype == TensorType::bf16 ? Storage::bf16 : Storage::f32;
  count(*weight, storage_name(source.storage));
  parameters_ += product(shape);
  return source;
}

MatrixSource TensorReader::quantised(const std::string& module, std::vector<uint64_t> shape) {
  MatrixSource source;
  source.cols = shape.back();
  const std::optional<QuantFormat> format = checkpoint_.config().quantisation.format_of(module);
  if (!format) {
    problem("unexpected: " + module + ".scales, but config.json does not say that " + module +
            " is quantised");
    for (const char* part : {".weight", ".scales", ".biases"}) {
      if (const TensorInfo* tensor = checkpoint_.find(module + part)) touched_.insert(tensor);
    }
    return source;
  }
  source.group_size = format->group;
  source.storage = format->bits == 4 ? Storage::q4 : Storage::q8;
  if (source.cols % format->group != 0) {
    problem("wrong shape: " + module + " has " + grouped(source.cols) +
            " columns, which groups of " + std::to_string(format->group) + " do not divide");
    return source;
  }
  const auto codes = with_last(shape, source.cols * format->bits / 32);
  const auto factors = with_last(shape, source.cols / format->group);
  bool sound = true;
  const auto part = [&](const char* suffix, TensorType type,
                        const std::vector<uint64_t>& expected) {
    const char* type_name = type == TensorType::u32 ? "U32 " : "BF16 ";
    const TensorInfo* tensor = find(module + suffix, type_name + shape_text(expected));
    const bool typed = tensor != nullptr && check_type(*tensor, {type});
    const bool shaped = tensor != nullptr && check_shape(*tensor, expected);
    sound = sound && typed && shaped;
    return tensor;
  };
  const TensorInfo* weight = part(".weight", TensorType::u32, codes);
  source.scales = part(".scales", TensorType::bf16, factors);
  source.biases = part(".biases", TensorType::bf16, factors);
  if (!sound) return source;
  source.weight = weight;
  for (const TensorInfo* tensor : {weight, source.scales, source.biases}) {
    count(*tensor, storage_name(source.storage));
  }
  parameters_ += product(shape);
  return source;
}

View TensorReader::view_of(const TensorInfo& tensor, uint64_t first_byte, uint64_t bytes,
                           uint64_t own_bytes) {
  const uint64_t begin = tensor.offset + first_byte;
  if (begin % alignment_bytes_ != 0) {  // vector loads of GPUs fault there
    if (depth_ == CheckDepth::headers) return arena_.view(bytes);
    return arena_.filled(checkpoint_.bytes(tensor).subspan(first_byte, bytes));
  }
  in_place_bytes_ += own_bytes;
  return View(arena_.counts_only() ? nullptr : shards_[tensor.shard], begin, bytes);
}

Matrix TensorReader::place(const MatrixSource& source) {
  Matrix matrix = shape_of(source);
  if (source.weight == nullptr) return matrix;
  const auto part = [&](const TensorInfo& tensor, uint64_t row_bytes) {
    return view_of(tensor, source.first_row * row_bytes, spanned_rows(source) * row_bytes,
                   source.experts * source.rows * row_bytes);
  };
  matrix.weight = part(*source.weight, storage_row_bytes(source.storage, source.cols));
  if (source.scales != nullptr) {
    matrix.scales = part(*source.scales, source.cols / source.group_size * 2);
    matrix.biases = part(*source.biases, source.cols / source.group_size * 2);
  }
  return matrix;
}

std::pair<Matrix, Matrix> TensorReader::place_alike(const MatrixSource& a, const MatrixSource& b) {
  const bool sound = a.weight != nullptr && b.weight != nullptr;
  const StorageFormat format = common_format(format_of(a), format_of(b));
  if (!sound || format_of(a) == format_of(b)) return {place(a), place(b)};
  const auto rewrite = [&](const MatrixSource& source) {
    Matrix matrix = shape_of(source);
    matrix.storage = format.storage;
    matrix.group_size = format.group_size;
    matrix.expert_stride_rows = source.rows;
    const uint64_t rows = source.experts * source.rows;
    const uint64_t factor_bytes =
        format.group_size ? rows * source.cols / format.group_size * 2 : 0;
    RowBytes bytes;
    if (arena_.counts_only()) {
      matrix.weight = arena_.view(rows * storage_row_bytes(format.storage, source.cols));
      if (factor_bytes) matrix.scales = arena_.view(factor_bytes);
      if (factor_bytes) matrix.biases = arena_.view(factor_bytes);
      return matrix;
    }
    const auto data = [&](const TensorInfo* t) { return t ? checkpoint_.data(*t) : nullptr; };
    const StoredRows from{source.storage,      source.group_size,   source.cols,
                          data(source.weight), data(source.scales), data(source.biases)};
    for (uint64_t expert = 0; expert < source.experts; ++expert) {
      append_rows(bytes, format, from, source.first_row + expert * source.stride_rows, source.rows);
    }
    matrix.weight = arena_.filled<std::byte>(bytes.weight);
    if (factor_bytes) matrix.scales = arena_.filled<std::byte>(bytes.scales);
    if (factor_bytes) matrix.biases = arena_.filled<std::byte>(bytes.biases);
    return matrix;
  };
  return {rewrite(a), rewrite(b)};
}

std::vector<float> TensorReader::decode_small(const TensorInfo& tensor, Transform transform) {
  std::vector<float> values(tensor.elements());
  const std::byte* bytes = checkpoint_.data(tensor);
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.dtype == TensorType::f32) {
      std::memcpy(&values[i], bytes + 4 * i, 4);
    } else {
      uint16_t bits;
      std::memcpy(&bits, bytes + 2 * i, 2);
      values[i] = bf16_to_f32(bits);
    }
    const float stored = values[i];
    if (transform == Transform::one_plus) values[i] = 1.0f + stored;
    if (transform == Transform::minus_exp) values[i] = -std::exp(stored);
    if (std::isfinite(stored) && std::isfinite(values[i])) continue;
    problem("not finite: " + tensor.name + " holds " + std::to_string(stored) + " at element " +
            grouped(i));
    break;
  }
  return values;
}

Tensor TensorReader::small(const std::string& name, const std::vector<uint64_t>& file_shape,
                           std::vector<uint64_t> shape, Transform transform) {
  Tensor result{{}, DType::f32, std::move(shape)};
  const TensorInfo* tensor = find(name, kFloatTypes + (" " + shape_text(file_shape)));
  if (tensor == nullptr) return result;
  const bool typed = check_type(*tensor, {TensorType::bf16, TensorType::f32});
  if (!check_shape(*tensor, file_shape) || !typed) return result;
  count(*tensor, tensor->dtype == TensorType::bf16 ? "bf16" : "f32");
  parameters_ += tensor->elements();
  if (depth_ == CheckDepth::headers) {
    result.view = arena_.view(tensor->elements() * sizeof(float));
  } else {
    const std::vector<float> values = decode_small(*tensor, transform);
    result.view = arena_.filled<float>(values);
  }
  return result;
}

Tensor TensorReader::constant(const std::vector<float>& values) {
  return {arena_.filled<float>(values), DType::f32, {values.size()}};
}

std::vector<const TensorInfo*> TensorReader::untouched() const {
  std::vector<const TensorInfo*> rest;
  for (const TensorInfo& tensor : checkpoint_.tensors()) {
    if (!touched_.contains(&tensor)) rest.push_back(&tensor);
  }
  return rest;
}

}  // namespace lily
