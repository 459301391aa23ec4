// One safetensors file: 8 bytes of header length, a JSON header, then the tensors' bytes. The whole
// header is checked here, so that who holds a TensorInfo may use its numbers as they are. Knows no
// model and no folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/mapped_file.h"

namespace lily {

// Element types as files name them; `unknown` keeps the file's word in TensorInfo::dtype_name.
enum class TensorType : uint8_t {
  unknown,
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean
};
uint32_t tensor_type_bytes(TensorType type);  // 0 for unknown
TensorType tensor_type_from_name(std::string_view name);

struct TensorInfo {
  std::string name;
  TensorType dtype = TensorType::unknown;
  std::string dtype_name;       // as the file spells it: "BF16", "U32"
  std::vector<uint64_t> shape;  // empty for a scalar
  size_t shard = 0;             // index into Checkpoint::shards()
  uint64_t offset = 0;          // from the start of the shard's file; of any alignment
  uint64_t bytes = 0;           // elements() times the element size, except for `unknown`

  uint64_t elements() const;       // the product of the shape; never overflows
  std::string shape_text() const;  // "[256, 1, 4]"
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Reads and checks the header at the start of `file`, the bytes of a whole file. Throws ModelError
// beginning with `where`.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> file,
                                          const std::string& where);

struct Safetensors {
  std::shared_ptr<const MappedFile> file;
  SafetensorsHeader header;

  // Maps the file and reads its header, nothing else. Throws ModelError.
  static Safetensors open(const std::filesystem::path& path);
};

}  // namespace lily
