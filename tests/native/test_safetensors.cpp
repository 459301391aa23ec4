// model/safetensors: sound files, and every way found to break one.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "files.h"
#include "model/safetensors.h"

namespace lily {
namespace {

using test::as_bytes;
using test::little_endian;
using test::replaced;
using test::safetensors;

// Three tensors of 12, 0 and 10 bytes, listed in another order than they lie in.
const std::string kHeader = R"({"__metadata__":{"format":"pt"},)"
                            R"("b":{"dtype":"BF16","shape":[5,1],"data_offsets":[12,22]},)"
                            R"("none":{"dtype":"U32","shape":[4,0],"data_offsets":[12,12]},)"
                            R"("a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
const std::string kFile = safetensors(kHeader, 22);

SafetensorsHeader read(const std::string& file) {
  return read_safetensors_header(as_bytes(file), "x.safetensors");
}

void expect_error(const std::string& file, std::string_view part, int line = __builtin_LINE()) {
  test::check_throws<ModelError>(__FILE__, line, part, [&] { read(file); });
}

void expect_header_error(const std::string& header, std::string_view part,
                         int line = __builtin_LINE()) {
  expect_error(safetensors(header, 22), part, line);
}

// What holds for any header that was let through.
bool is_consistent(const SafetensorsHeader& header, uint64_t file_bytes) {
  uint64_t at = header.tensors.empty() ? file_bytes : header.tensors.front().offset;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.offset != at) return false;
    at += tensor.bytes;
    const uint64_t size = tensor_type_bytes(tensor.dtype);
    if (size != 0 && tensor.bytes != tensor.elements() * size) return false;
  }
  return at == file_bytes;
}

TEST(safetensors_reads_a_header) {
  const SafetensorsHeader header = read(kFile);
  CHECK_EQ(header.metadata.size(), 1u);
  CHECK_EQ(header.metadata[0].second, "pt");
  CHECK_EQ(header.tensors.size(), 3u);
  CHECK_EQ(header.tensors[0].name, "a");
  CHECK_EQ(header.tensors[1].name, "none");
  const TensorInfo& b = header.tensors[2];
  CHECK_EQ(b.name, "b");
  CHECK(b.dtype == TensorType::bf16);
  CHECK_EQ(b.shape_text(), "[5, 1]");
  CHECK_EQ(b.elements(), 5u);
  CHECK_EQ(b.offset, 8 + kHeader.size() + 12);
  CHECK_EQ(b.bytes, 10u);
  CHECK(is_consistent(header, kFile.size()));
}

TEST(safetensors_takes_what_the_format_allows) {
  CHECK(read(safetensors("{}", 0)).tensors.empty());
  CHECK(read(safetensors("{\"__metadata__\":null}   ", 0)).tensors.empty());
  const std::string scalar = R"({"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})";
  CHECK_EQ(read(safetensors(scalar, 8)).tensors[0].elements(), 1u);
  const std::string odd = R"({"s":{"dtype":"F4","shape":[6],"data_offsets":[0,3]}})";
  const SafetensorsHeader header = read(safetensors(odd, 3));
  CHECK(header.tensors[0].dtype == TensorType::unknown);
  CHECK_EQ(header.tensors[0].dtype_name, "F4");
  for (const char* name : {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32", "I16",
                           "I8", "U64", "U32", "U16", "U8", "BOOL"}) {
    CHECK(tensor_type_bytes(tensor_type_from_name(name)) != 0);
  }
  CHECK_EQ(tensor_type_bytes(TensorType::unknown), 0u);
}

TEST(safetensors_cut_at_every_byte) {
  for (size_t size = 0; size < kFile.size(); ++size) {
    const std::string_view part = size < 8 ? "too short" : "cut short";
    expect_error(kFile.substr(0, size), part);
  }
  expect_error(kFile.substr(0, kFile.size() - 3), "it has " + std::to_string(kFile.size() - 3) +
                                                      " bytes, its tensors take " +
                                                      std::to_string(kFile.size()));
  expect_error(kFile + "x", "1 bytes after the last tensor belong to no tensor");
}

TEST(safetensors_with_every_bit_flipped) {
  int loaded = 0;
  for (size_t bit = 0; bit < (8 + kHeader.size()) * 8; ++bit) {
    std::string flipped = kFile;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    try {
      CHECK(is_consistent(read(flipped), flipped.size()));
      ++loaded;  // a letter of a name, or an unknown type
    } catch (const ModelError&) {
    }
  }
  CHECK(loaded > 0);
}

TEST(safetensors_header_lengths) {
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  for (const uint64_t length :
       {most, most - 7, most / 2, uint64_t{1} << 40, uint64_t{100'000'001}}) {
    expect_error(little_endian(length) + "{}", "its header would have");
  }
  expect_error(little_endian(100'000'000) + "{}", "its header alone takes 100,000,008");
  expect_error(little_endian(3) + "{}", "its header alone takes 11");
  expect_error(little_endian(0), "the text ends");
  expect_error("<!DOCTYPE html><html></html>", "is not a safetensors file");
  expect_error("", "has 0 bytes");
}

TEST(safetensors_wrong_json) {
  expect_header_error("[]", "expected an object, found an array");
  expect_header_error("{\"a\":3}", "expected an object, found 3");
  expect_header_error("{\"a\":{}}", "\"shape\" is missing");
  expect_header_error("{\"__metadata__\":{\"a\":1}}", "expected a string, found 1");
  expect_header_error(replaced(kHeader, "\"b\"", "\"a\""), "\"a\" occurs twice");
  expect_header_error(replaced(kHeader, "\"BF16\"", "16"),
                      "header: \"b\": line 1, column 46: expected a string, found 16");
  expect_header_error(replaced(kHeader, "[5,1]", "5"), "expected an array, found 5");
  expect_header_error(replaced(kHeader, "[5,1]", "[5.0]"), "expected an integer, found 5");
  expect_header_error(replaced(kHeader, "[5,1]", "[-5]"), "negative: -5");
  expect_header_error(replaced(kHeader, "[12,22]", "[12]"), "data_offsets has 1 entries");
  expect_header_error(replaced(kHeader, "[12,22]", "[12,22,1]"), "data_offsets has 3 entries");
  expect_header_error(replaced(kHeader, "[12,22]", "[-12,22]"), "negative: -12");
  expect_header_error(replaced(kHeader, "\"none\"", "\"no\xFFne\""), "invalid UTF-8");
  expect_header_error("\xEF\xBB\xBF" + kHeader, "byte-order mark");
  expect_header_error(std::string(10'000, '['), "nested more than 64 deep");
}

TEST(safetensors_offsets_that_lie) {
  expect_header_error(replaced(kHeader, "[12,22]", "[22,12]"), "begins at 22, after its end at 12");
  expect_header_error(replaced(kHeader, "[12,22]", "[10,20]"), "\"a\" and \"b\" overlap");
  expect_header_error(replaced(kHeader, "[12,22]", "[12,24]"),
                      "\"b\" has 12 bytes; BF16 [5, 1] takes 10");
  expect_error(safetensors(replaced(kHeader, "[12,22]", "[14,24]"), 24),
               "2 bytes before tensor \"b\" belong to no tensor");
  expect_error(safetensors(replaced(kHeader, "[0,12]", "[1,13]"), 23),
               "1 bytes before tensor \"a\"");
  expect_header_error(replaced(kHeader, "[12,12]", "[11,11]"), "overlap");
  const std::string far =
      R"({"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,9223372036854775807]}})";
  expect_header_error(far, "its tensors take 9,223,372,036,854,775,8");
  const std::string beyond =
      R"({"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,9223372036854775808]}})";
  expect_header_error(beyond, "expected an integer");
}

TEST(safetensors_shapes_that_overflow) {
  const auto shaped = [](const std::string& shape, const std::string& dtype) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,22]}})";
  };
  expect_header_error(shaped("[4294967296,4294967296]", "U8"), "more than 2^64 elements");
  expect_header_error(shaped("[4294967296,4294967296,0]", "U8"), "more than 2^64 elements");
  expect_header_error(shaped("[4611686018427387904,2]", "BF16"), "takes more than 2^64");
  // 2^63 + 11 elements of 2 bytes: 22 bytes modulo 2^64.
  expect_header_error(shaped("[9223372036854775807,1]", "BF16"),
                      "takes 18,446,744,073,709,551,614");
  const std::string eighth = R"({"a":{"dtype":"F64","shape":[2305843009213693952],)"
                             R"("data_offsets":[0,2305843009213693952]}})";
  expect_header_error(eighth, "takes more than 2^64");
  expect_header_error(shaped("[99999999999999999999]", "U8"), "expected an integer");
  std::string many = "[1";
  for (int i = 0; i < 40; ++i) many += ",1";
  expect_header_error(shaped(many + "]", "U8"), "41 dimensions");
}

TEST(safetensors_maps_without_reading) {
  const test::Folder folder;
  const uint64_t bytes = 20'000'000'000;
  const std::string header = R"({"w":{"dtype":"U8","shape":[20000000000],)"
                             R"("data_offsets":[0,20000000000]}})";
  const auto path = folder.write("big.safetensors", safetensors(header, 0));
  const auto whole = static_cast<off_t>(8 + header.size() + bytes);
  CHECK_EQ(::truncate(path.c_str(), whole), 0);
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const Safetensors file = Safetensors::open(path);
  ::getrusage(RUSAGE_SELF, &after);
  CHECK_EQ(file.header.tensors.at(0).bytes, bytes);
  CHECK_EQ(file.file->size(), 8 + header.size() + bytes);
  CHECK(after.ru_maxrss - before.ru_maxrss < 64'000);  // KB on Linux, bytes on macOS
  CHECK_THROWS(ModelError, "big.safetensors: is cut short", {
    CHECK_EQ(::truncate(path.c_str(), whole - 1), 0);
    Safetensors::open(path);
  });
}

}  // namespace
}  // namespace lily
