// The header is text from strangers: each number is bounded before it is added, multiplied or used
// as an offset, and the tensors must tile the rest of the file exactly, as the format demands.
#include "model/safetensors.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "core/error.h"
#include "core/json.h"

namespace lily {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference reader
constexpr size_t kMaxDimensions = 32;
constexpr uint64_t kLengthBytes = 8;

struct TypeRow {
  std::string_view name;
  TensorType type;
  uint32_t bytes;
};
constexpr TypeRow kTypes[] = {
    {"F64", TensorType::f64, 8},         {"F32", TensorType::f32, 4},
    {"F16", TensorType::f16, 2},         {"BF16", TensorType::bf16, 2},
    {"F8_E4M3", TensorType::f8_e4m3, 1}, {"F8_E5M2", TensorType::f8_e5m2, 1},
    {"I64", TensorType::i64, 8},         {"I32", TensorType::i32, 4},
    {"I16", TensorType::i16, 2},         {"I8", TensorType::i8, 1},
    {"U64", TensorType::u64, 8},         {"U32", TensorType::u32, 4},
    {"U16", TensorType::u16, 2},         {"U8", TensorType::u8, 1},
    {"BOOL", TensorType::boolean, 1},
};

bool multiply(uint64_t& product, uint64_t factor) {
  if (factor != 0 && product > std::numeric_limits<uint64_t>::max() / factor) return false;
  product *= factor;
  return true;
}

// A JSON integer that is not negative.
uint64_t count(const Json& json) {
  const int64_t value = json.as_int();
  if (value < 0) throw JsonError(json.line(), json.column(), "negative: " + json.describe());
  return static_cast<uint64_t>(value);
}

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> file, const std::string& where)
      : file_(file), where_(where) {}

  SafetensorsHeader read() {
    const std::string_view text = header_text();
    std::string reading;  // what an error in the JSON is about
    try {
      const Json json = Json::parse(text, {.max_bytes = kMaxHeaderBytes});
      header_.tensors.reserve(json.members().size());
      for (const Json::Member& member : json.members()) {
        reading = printable(member.name) + ": ";
        if (member.name == "__metadata__") {
          read_metadata(member.value);
        } else {
          read_tensor(member.name, member.value);
        }
      }
    } catch (const JsonError& error) {
      fail("safetensors header: " + reading + error.what());
    }
    check_tiling();
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ModelError(where_ + ": " + what); }

  std::string_view header_text() {
    if (file_.size() < kLengthBytes) {
      fail("has " + grouped(file_.size()) + " bytes, which is too short for a safetensors file");
    }
    uint64_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) {
      length |= static_cast<uint64_t>(file_[i]) << (8 * i);
    }
    if (length > kMaxHeaderBytes) {
      fail("is not a safetensors file: its header would have " + grouped(length) +
           " bytes, at most " + grouped(kMaxHeaderBytes) + " are allowed");
    }
    if (length > file_.size() - kLengthBytes) {
      fail("is cut short: it has " + grouped(file_.size()) + " bytes, its header alone takes " +
           grouped(kLengthBytes + length));
    }
    data_begin_ = kLengthBytes + length;
    return {reinterpret_cast<const char*>(file_.data()) + kLengthBytes,
            static_cast<size_t>(length)};
  }

  void read_metadata(const Json& json) {
    if (json.is_null()) return;
    for (const Json::Member& member : json.members()) {
      header_.metadata.emplace_back(member.name, member.value.as_string());
    }
  }

  void read_tensor(const std::string& name, const Json& json) {
    const Json& shape = json.at("shape");
    const Json& offsets = json.at("data_offsets");
    TensorInfo tensor;
    tensor.name = name;
    tensor.dtype_name = json.at("dtype").as_string();
    tensor.dtype = tensor_type_from_name(tensor.dtype_name);
    if (shape.items().size() > kMaxDimensions) {
      fail("tensor " + printable(name) + " has " + grouped(shape.items().size()) +
           " dimensions, at most " + grouped(kMaxDimensions) + " are allowed");
    }
    for (const Json& extent : shape.items()) tensor.shape.push_back(count(extent));
    if (offsets.items().size() != 2) {
      fail("tensor " + printable(name) + ": data_offsets has " + grouped(offsets.items().size()) +
           " entries, expected begin and end");
    }
    const uint64_t begin = count(offsets.items()[0]);
    const uint64_t end = count(offsets.items()[1]);
    if (begin > end) {
      fail("tensor " + printable(name) + " begins at " + grouped(begin) + ", after its end at " +
           grouped(end));
    }
    tensor.offset = data_begin_ + begin;  // both below 2^63
    tensor.bytes = end - begin;
    check_size(tensor);
    header_.tensors.push_back(std::move(tensor));
  }

  void check_size(const TensorInfo& tensor) const {
    uint64_t elements = 1;
    for (const uint64_t extent : tensor.shape) {
      if (!multiply(elements, extent)) {
        fail("tensor " + printable(tensor.name) + ": shape " + tensor.shape_text() +
             " has more than 2^64 elements");
      }
    }
    if (tensor.dtype == TensorType::unknown) return;
    uint64_t bytes = elements;
    const bool fits = multiply(bytes, tensor_type_bytes(tensor.dtype));
    if (fits && bytes == tensor.bytes) return;
    fail("tensor " + printable(tensor.name) + " has " + grouped(tensor.bytes) + " bytes; " +
         tensor.dtype_name + " " + tensor.shape_text() + " takes " +
         (fits ? grouped(bytes) : "more than 2^64"));
  }

  // Sorts the tensors by place, and checks that they fill the data without overlap and hole.
  void check_tiling() {
    std::vector<TensorInfo>& tensors = header_.tensors;
    const auto place = [](const TensorInfo& t) { return std::tie(t.offset, t.bytes, t.name); };
    std::sort(tensors.begin(), tensors.end(),
              [&](const TensorInfo& a, const TensorInfo& b) { return place(a) < place(b); });
    uint64_t promised = data_begin_;
    for (const TensorInfo& tensor : tensors) {
      promised = std::max(promised, tensor.offset + tensor.bytes);
    }
    if (promised > file_.size()) {
      fail("is cut short: it has " + grouped(file_.size()) + " bytes, its tensors take " +
           grouped(promised));
    }
    uint64_t at = data_begin_;
    std::string_view before;
    for (const TensorInfo& tensor : tensors) {
      if (tensor.offset < at) {
        fail("tensors " + printable(before) + " and " + printable(tensor.name) + " overlap");
      }
      if (tensor.offset > at) {
        fail(grouped(tensor.offset - at) + " bytes before tensor " + printable(tensor.name) +
             " belong to no tensor");
      }
      at += tensor.bytes;
      before = tensor.name;
    }
    if (at != file_.size()) {
      fail(grouped(file_.size() - at) + " bytes after the last tensor belong to no tensor");
    }
  }

  std::span<const std::byte> file_;
  const std::string& where_;
  uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace

uint32_t tensor_type_bytes(TensorType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.bytes;
  }
  return 0;
}

TensorType tensor_type_from_name(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return TensorType::unknown;
}

uint64_t TensorInfo::elements() const {
  uint64_t product = 1;
  for (const uint64_t extent : shape) product *= extent;
  return product;
}

std::string TensorInfo::shape_text() const {
  std::string text = "[";
  for (const uint64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

SafetensorsHeader read_safetensors_header(std::span<const std::byte> file,
                                          const std::string& where) {
  return HeaderReader(file, where).read();
}

Safetensors Safetensors::open(const std::filesystem::path& path) {
  std::shared_ptr<const MappedFile> file = MappedFile::open(path);
  SafetensorsHeader header = read_safetensors_header(file->bytes(), path.string());
  return {std::move(file), std::move(header)};
}

}  // namespace lily
