// See encoder_weights.h.
#include "model/encoder_weights.h"

#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/mapped_file.h"
#include "model/arena.h"
#include "model/safetensors.h"
#include "model/storage_convert.h"
#include "params.h"

namespace lily {
namespace {

constexpr uint64_t kMostConfigBytes = 1 << 20;
constexpr uint32_t kWordGroup = 32;

uint32_t bounded(const Json& object, const char* key, int64_t least, int64_t most) {
  const Json& value = object.at(key);
  if (!value.is_int() || value.as_int() < least || value.as_int() > most) {
    throw ModelError(std::string(key) + " is " + value.describe() + ", expected an integer from " +
                     std::to_string(least) + " to " + std::to_string(most));
  }
  return static_cast<uint32_t>(value.as_int());
}

uint32_t length_of(const Json& object, const char* key) {
  const size_t length = object.at(key).items().size();
  if (length == 0 || length > 1024) {
    throw ModelError(std::string(key) + " has " + grouped(length) +
                     " entries, expected 1 to 1,024");
  }
  return static_cast<uint32_t>(length);
}

EncoderConfig read_config(const Json& json) {
  const Json& type = json.at("model_type");
  if (!type.is_string() || type.as_string() != "lily_gate") {
    throw ModelError("model_type is " + type.describe() + ", expected \"lily_gate\"");
  }
  const Json& quantisation = json.at("quantisation");
  bounded(quantisation, "bits", 8, 8);
  EncoderConfig config;
  config.layers = bounded(json, "layers", 1, 64);
  config.heads = bounded(json, "heads", 1, 128);
  config.hidden = bounded(json, "hidden", 1, 4096);
  config.intermediate = bounded(json, "intermediate", 1, 16'384);
  config.vocab = bounded(json, "vocab", 1, 1'000'000);
  config.window_tokens = bounded(json, "window_tokens", 3, kEncoderMaxWindow);
  config.forms = bounded(json, "forms", 1, 1024);
  config.group_size = bounded(quantisation, "group_size", 32, 128);
  config.token_outputs = 1 + 4 * length_of(json, "labels");
  config.document_outputs = length_of(json, "topics") + length_of(json, "subjects");
  const double eps = json.at("layer_norm_eps").as_double();
  if (!(eps >= 0 && eps < 1)) {
    throw ModelError("layer_norm_eps is " + std::to_string(eps) + ", expected 0 up to 1");
  }
  config.eps = static_cast<float>(eps);
  if (config.hidden != config.heads * kEncoderHeadDim) {
    throw ModelError("hidden is " + std::to_string(config.hidden) + ", expected heads * " +
                     std::to_string(kEncoderHeadDim));
  }
  const uint32_t group = config.group_size;
  if ((group & (group - 1)) != 0 || config.hidden % group != 0 || config.intermediate % group) {
    throw ModelError("group_size is " + std::to_string(group) +
                     ", expected 32, 64 or 128 that divides hidden and intermediate");
  }
  return config;
}

// Each tensor is asked for once; what nobody asks for is an error, too.
class EncoderReader {
 public:
  EncoderReader(const Safetensors& file, const EncoderConfig& config, Device& device)
      : file_(*file.file), group_(config.group_size), device_(device), arena_(&device) {
    mapped_ = device.wrap(file.file, file_.data(), file_.size());
    for (const TensorInfo& tensor : file.header.tensors) tensors_.emplace(tensor.name, &tensor);
  }

  Matrix q8(const std::string& name, uint64_t rows, uint64_t cols) {
    return affine(name, rows, cols, Storage::q8, group_);
  }
  // The table of words: half of all weights, and less sensitive than the products.
  Matrix words(const std::string& name, uint64_t rows, uint64_t cols) {
    return affine(name, rows, cols, Storage::q4, kWordGroup);
  }
  Matrix f32_matrix(const std::string& name, uint64_t rows, uint64_t cols) {
    Matrix matrix{.storage = Storage::f32, .rows = rows, .cols = cols};
    matrix.weight = arena_.filled<float>(floats(name + ".weight", {rows, cols}));
    return matrix;
  }
  Tensor f32_table(const std::string& name, uint64_t rows, uint64_t cols) {
    return {arena_.filled<float>(floats(name, {rows, cols})), DType::f32, {rows, cols}};
  }
  Tensor f32(const std::string& name, uint64_t size) { return placed(floats(name, {size})); }
  Tensor placed(const std::vector<float>& values) {
    return {arena_.filled<float>(values), DType::f32, {values.size()}};
  }

  std::vector<float> floats(const std::string& name, std::vector<uint64_t> shape) {
    const TensorInfo& tensor = take(name, TensorType::f32, std::move(shape));
    std::vector<float> values(tensor.elements());
    std::memcpy(values.data(), file_.data() + tensor.offset, tensor.bytes);
    for (const float value : values) check_finite(name, value);
    return values;
  }

  void refuse_the_rest() const {
    if (tensors_.empty()) return;
    throw ModelError("unexpected tensor " + printable(tensors_.begin()->first) + ", one of " +
                     grouped(tensors_.size()));
  }

 private:
  Matrix affine(const std::string& name, uint64_t rows, uint64_t cols, Storage storage,
                uint32_t group) {
    Matrix matrix{.storage = storage, .rows = rows, .cols = cols, .group_size = group};
    const uint64_t codes_per_word = storage == Storage::q4 ? 8 : 4;
    matrix.weight =
        in_place(take(name + ".weight", TensorType::u32, {rows, cols / codes_per_word}));
    matrix.scales = factors(name + ".scales", rows, cols / group);
    matrix.biases = factors(name + ".biases", rows, cols / group);
    return matrix;
  }
  const TensorInfo& take(const std::string& name, TensorType type, std::vector<uint64_t> shape) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw ModelError("there is no tensor " + name);
    const TensorInfo& tensor = *found->second;
    if (tensor.dtype != type || tensor.shape != shape) {
      TensorInfo expected;
      expected.shape = std::move(shape);
      throw ModelError(name + " is " + printable(tensor.dtype_name) + " " + tensor.shape_text() +
                       ", expected " + name_of(type) + " " + expected.shape_text());
    }
    tensors_.erase(found);
    return tensor;
  }
  static const char* name_of(TensorType type) {
    return type == TensorType::u32 ? "U32" : type == TensorType::bf16 ? "BF16" : "F32";
  }
  static void check_finite(const std::string& name, float value) {
    if (!std::isfinite(value)) throw ModelError(name + " holds " + std::to_string(value));
  }

  View in_place(const TensorInfo& tensor) {
    if (tensor.offset % device_.weight_alignment_bytes() == 0) {
      return View(mapped_, tensor.offset, tensor.bytes);
    }
    return arena_.filled(file_.bytes().subspan(tensor.offset, tensor.bytes));
  }
  View factors(const std::string& name, uint64_t rows, uint64_t groups) {
    const TensorInfo& tensor = take(name, TensorType::bf16, {rows, groups});
    for (uint64_t i = 0; i < tensor.elements(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, file_.data() + tensor.offset + 2 * i, 2);
      check_finite(name, bf16_to_f32(bits));
    }
    return in_place(tensor);
  }

  const MappedFile& file_;
  uint32_t group_;
  Device& device_;
  Arena arena_;
  Buffer mapped_;
  std::map<std::string, const TensorInfo*> tensors_;
};

EncoderNorm read_norm(EncoderReader& reader, const std::string& name, uint64_t hidden) {
  return {.bias = {},
          .gain = reader.f32(name + ".weight", hidden),
          .shift = reader.f32(name + ".bias", hidden)};
}

EncoderLayer read_layer(EncoderReader& reader, const EncoderConfig& c, uint32_t index) {
  const std::string prefix = "layers." + std::to_string(index) + ".";
  const std::string attention = prefix + "attention.", mlp = prefix + "mlp.";
  EncoderLayer layer;
  std::vector<float> bias;
  for (const auto& [name, matrix] : {std::pair{"query", &layer.query}, std::pair{"key", &layer.key},
                                     std::pair{"value", &layer.value}}) {
    *matrix = reader.q8(attention + name, c.hidden, c.hidden);
    const std::vector<float> part = reader.floats(attention + name + ".bias", {c.hidden});
    bias.insert(bias.end(), part.begin(), part.end());
  }
  layer.qkv_bias = reader.placed(bias);
  layer.output = reader.q8(attention + "output", c.hidden, c.hidden);
  layer.attention_norm = read_norm(reader, attention + "norm", c.hidden);
  layer.attention_norm.bias = reader.f32(attention + "output.bias", c.hidden);
  layer.up = reader.q8(mlp + "up", c.intermediate, c.hidden);
  layer.up_bias = reader.f32(mlp + "up.bias", c.intermediate);
  layer.down = reader.q8(mlp + "down", c.hidden, c.intermediate);
  layer.mlp_norm = read_norm(reader, mlp + "norm", c.hidden);
  layer.mlp_norm.bias = reader.f32(mlp + "down.bias", c.hidden);
  return layer;
}

EncoderWeights read_weights(EncoderReader& reader, const EncoderConfig& c) {
  EncoderWeights weights;
  weights.words = reader.words("embeddings.word", c.vocab, c.hidden);
  weights.positions = reader.f32_table("embeddings.position.weight", c.window_tokens, c.hidden);
  weights.forms = reader.f32_table("embeddings.form.weight", c.forms, c.hidden);
  weights.embedding_norm = read_norm(reader, "embeddings.norm", c.hidden);
  for (uint32_t index = 0; index < c.layers; ++index) {
    weights.layers.push_back(read_layer(reader, c, index));
  }
  weights.token = reader.f32_matrix("token", c.token_outputs, c.hidden);
  weights.token_bias = reader.floats("token.bias", {c.token_outputs});
  weights.dense = reader.f32_matrix("document.dense", c.hidden, 2ull * c.hidden);
  weights.dense_bias = reader.f32("document.dense.bias", c.hidden);
  weights.document = reader.f32_matrix("document.output", c.document_outputs, c.hidden);
  weights.document_bias = reader.floats("document.output.bias", {c.document_outputs});
  reader.refuse_the_rest();
  return weights;
}

}  // namespace

EncoderConfig EncoderConfig::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const std::string text = read_small_file(path, kMostConfigBytes);
  try {
    return read_config(Json::parse(text));
  } catch (const Error& error) {
    throw ModelError(path.string() + ": " + error.what());
  }
}

EncoderWeights EncoderWeights::load(const std::filesystem::path& folder,
                                    const EncoderConfig& config, Device& device) {
  const std::filesystem::path path = folder / "model.safetensors";
  const Safetensors file = Safetensors::open(path);
  try {
    EncoderReader reader(file, config, device);
    return read_weights(reader, config);
  } catch (const ModelError& error) {
    throw ModelError(path.string() + ": " + error.what());
  }
}

}  // namespace lily
