// The gate's encoder over files built here: what it gives for weights that a person can follow, and
// what it refuses. Its numbers are judged by tests/gate; here sanitizers watch the memory.
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "files.h"
#include "model/encoder.h"

namespace lily {
namespace {

constexpr uint64_t kHidden = 32, kInner = 64, kVocab = 5, kWindow = 7, kForms = 3;
constexpr uint32_t kTokenOutputs = 5, kDocumentOutputs = 4;

const char* const kConfig = R"({"model_type": "lily_gate", "layers": 1, "hidden": 32, "heads": 1,
  "intermediate": 64, "vocab": 5, "layer_norm_eps": 1e-12, "window_tokens": 7, "forms": 3,
  "quantisation": {"bits": 8, "group_size": 32}, "labels": ["person"], "topics": ["health"],
  "subjects": ["personal", "general", "fiction"]})";

class FileBuilder {
 public:
  void f32(const std::string& name, std::vector<uint64_t> shape, float value) {
    std::string bytes;
    for (uint64_t i = 0; i < count(shape); ++i) bytes.append(reinterpret_cast<char*>(&value), 4);
    add(name, "F32", shape, bytes);
  }
  // Codes that differ by column; scale 1/256 and bias 0.
  void q8(const std::string& name, uint64_t rows, uint64_t cols) { affine(name, rows, cols, 8); }
  void affine(const std::string& name, uint64_t rows, uint64_t cols, uint64_t bits) {
    std::string codes, scales;
    for (uint64_t i = 0; i < rows * cols * bits / 8; ++i) {
      codes.push_back(static_cast<char>(i * 37 % 251));
    }
    for (uint64_t i = 0; i < rows * cols / 32; ++i) scales += std::string("\x80\x3b", 2);
    add(name + ".weight", "U32", {rows, cols * bits / 32}, codes);
    add(name + ".scales", "BF16", {rows, cols / 32}, scales);
    add(name + ".biases", "BF16", {rows, cols / 32}, std::string(scales.size(), '\0'));
  }
  void linear(const std::string& name, uint64_t rows, uint64_t cols) {
    q8(name, rows, cols);
    f32(name + ".bias", {rows}, 0.125f);
  }
  void norm(const std::string& name) {
    f32(name + ".weight", {kHidden}, 1.0f);
    f32(name + ".bias", {kHidden}, 0.0f);
  }
  std::string file() const {
    const std::string header = "{" + header_ + "}";
    return test::little_endian(header.size()) + header + data_;
  }

 private:
  static uint64_t count(const std::vector<uint64_t>& shape) {
    uint64_t product = 1;
    for (const uint64_t extent : shape) product *= extent;
    return product;
  }
  void add(const std::string& name, const char* type, const std::vector<uint64_t>& shape,
           const std::string& bytes) {
    std::string extents;
    for (const uint64_t extent : shape) {
      extents += (extents.empty() ? "" : ", ") + std::to_string(extent);
    }
    header_ += std::string(header_.empty() ? "" : ", ") + "\"" + name + "\": {\"dtype\": \"" +
               type + "\", \"shape\": [" + extents + "], \"data_offsets\": [" +
               std::to_string(data_.size()) + ", " + std::to_string(data_.size() + bytes.size()) +
               "]}";
    data_ += bytes;
  }

  std::string header_, data_;
};

std::string whole_file(float position = 0.5f) {
  FileBuilder file;
  file.affine("embeddings.word", kVocab, kHidden, 4);
  file.f32("embeddings.position.weight", {kWindow, kHidden}, position);
  file.f32("embeddings.form.weight", {kForms, kHidden}, 0.25f);
  file.norm("embeddings.norm");
  for (const char* part : {"query", "key", "value", "output"}) {
    file.linear("layers.0.attention." + std::string(part), kHidden, kHidden);
  }
  file.norm("layers.0.attention.norm");
  file.linear("layers.0.mlp.up", kInner, kHidden);
  file.linear("layers.0.mlp.down", kHidden, kInner);
  file.norm("layers.0.mlp.norm");
  file.f32("token.weight", {kTokenOutputs, kHidden}, 0.5f);
  file.f32("token.bias", {kTokenOutputs}, 2.0f);
  file.f32("document.dense.weight", {kHidden, 2 * kHidden}, 0.0f);
  file.f32("document.dense.bias", {kHidden}, 0.0f);
  file.f32("document.output.weight", {kDocumentOutputs, kHidden}, 1.0f);
  file.f32("document.output.bias", {kDocumentOutputs}, -3.0f);
  return file.file();
}

struct Model {
  test::Folder folder;
  explicit Model(const std::string& weights = whole_file(), const std::string& config = kConfig) {
    folder.write("config.json", config);
    folder.write("model.safetensors", weights);
  }
  std::shared_ptr<Encoder> load(uint32_t threads = 2) const {
    return Encoder::load(folder.path(), "cpu", threads);
  }
};

bool all_near(const std::vector<float>& values, float expected) {
  for (const float value : values) {
    if (!(std::abs(value - expected) <= 1e-5f)) return false;
  }
  return true;
}

TEST(encoder_gives_a_row_for_each_token_and_window) {
  const Model model;
  const std::vector<uint32_t> ids{0, 1, 4, 2, 3, 0, 1, 2, 4, 3}, forms(10, 2), lengths{7, 1, 2};
  const Encoder::Logits logits = model.load()->run(ids, forms, lengths);
  CHECK_EQ(logits.tokens.size(), size_t{10} * kTokenOutputs);
  CHECK_EQ(logits.documents.size(), size_t{3} * kDocumentOutputs);
  // A normed row sums to zero, so equal weights leave the bias alone; gelu(0) is 0.
  CHECK(all_near(logits.tokens, 2.0f));
  CHECK(all_near(logits.documents, -3.0f));
}

TEST(encoder_is_run_by_many_threads) {
  const Model model;
  const std::shared_ptr<Encoder> encoder = model.load();
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      const std::vector<uint32_t> ids(14, 1), forms(14, 0), lengths{7, 7};
      for (int i = 0; i < 5; ++i) CHECK(all_near(encoder->run(ids, forms, lengths).tokens, 2.0f));
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(encoder_refuses_what_is_out_of_range) {
  const Model model;
  const std::shared_ptr<Encoder> encoder = model.load(1);
  const std::vector<uint32_t> two{1, 1};
  CHECK_THROWS(InvalidInput, "id 1 is 5",
               encoder->run(std::vector<uint32_t>{0, 5}, two, std::vector<uint32_t>{2}));
  CHECK_THROWS(InvalidInput, "form 0 is 3",
               encoder->run(two, std::vector<uint32_t>{3, 0}, std::vector<uint32_t>{2}));
  CHECK_THROWS(InvalidInput, "expected 3", encoder->run(two, two, std::vector<uint32_t>{3}));
  CHECK_THROWS(InvalidInput, "window 1 is empty",
               encoder->run(two, two, std::vector<uint32_t>{2, 0}));
}

TEST(encoder_refuses_damaged_files) {
  const std::string whole = whole_file();
  for (const size_t size : {size_t{0}, size_t{7}, size_t{300}, whole.size() - 1}) {
    const Model cut(whole.substr(0, size));
    CHECK_THROWS(ModelError, "model.safetensors", cut.load());
  }
  const Model infinite(whole_file(INFINITY));
  CHECK_THROWS(ModelError, "embeddings.position.weight holds inf", infinite.load());
  const Model renamed(test::replaced(whole, "\"token.bias\"", "\"token.mass\""));
  CHECK_THROWS(ModelError, "there is no tensor token.bias", renamed.load());
  const Model retyped(test::replaced(whole, "\"U32\"", "\"I32\""));
  CHECK_THROWS(ModelError, "embeddings.word.weight is \"I32\"", retyped.load());
}

TEST(encoder_refuses_other_configs) {
  const auto refused = [](const char* from, const char* to, const char* message) {
    const Model model(whole_file(), test::replaced(kConfig, from, to));
    CHECK_THROWS(ModelError, message, model.load());
  };
  refused("lily_gate", "bert", "model_type is \"bert\"");
  refused("\"layers\": 1", "\"layers\": 65", "layers is 65");
  refused("\"heads\": 1", "\"heads\": 2", "hidden is 32");
  refused("\"group_size\": 32", "\"group_size\": 48", "group_size is 48");
  refused("\"window_tokens\": 7", "\"window_tokens\": 513", "window_tokens is 513");
  refused("\"vocab\": 5", "\"vocab\": 6", "embeddings.word.weight is");
  refused("\"labels\": [\"person\"]", "\"labels\": []", "labels has 0 entries");
  refused("\"forms\": 3,", "", "forms");
  refused("}", "", "config.json");
}

}  // namespace
}  // namespace lily
