// Any bytes as a safetensors file: refused with a ModelError, or read into numbers that hold.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "model/safetensors.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(std::span<const std::byte> file) {
  lily::SafetensorsHeader header;
  try {
    header = lily::read_safetensors_header(file, "fuzz");
  } catch (const lily::ModelError& error) {
    require(std::string(error.what()).starts_with("fuzz: "));
    return;
  }
  uint64_t at = header.tensors.empty() ? file.size() : header.tensors.front().offset;
  for (const lily::TensorInfo& tensor : header.tensors) {
    require(tensor.offset == at && tensor.bytes <= file.size() - at);
    const uint64_t size = lily::tensor_type_bytes(tensor.dtype);
    require(size == 0 || tensor.elements() * size == tensor.bytes);
    require(!tensor.shape_text().empty());
    at += tensor.bytes;
  }
  require(at == file.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> input(reinterpret_cast<const std::byte*>(data), size);
  check(input);
  // Once more with a header length that fits: the first zero byte ends the header.
  std::string file(8, '\0');
  file.append(reinterpret_cast<const char*>(data), size);
  const size_t zero = file.find('\0', 8);
  const uint64_t length = (zero == std::string::npos ? file.size() : zero) - 8;
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i));
  check({reinterpret_cast<const std::byte*>(file.data()), file.size()});
  return 0;
}
