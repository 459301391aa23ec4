// config.json of a qwen3_5_moe checkpoint, as numbers that the rest of the engine may trust: within
// bounds (no product of them overflows 64 bits), consistent, and of the one architecture that Lily
// runs. Knows no tensor and no device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace lily {

enum class LayerKind : uint8_t { attention, delta };

// MLX affine quantisation: w = scale * code + bias, one scale and bias a `group` of a row.
struct QuantFormat {
  uint32_t bits = 0;   // 4 or 8
  uint32_t group = 0;  // 32, 64 or 128
  bool operator==(const QuantFormat&) const = default;
};

struct Quantisation {
  bool present = false;
  QuantFormat standard;
  // Module path ("language_model.model.layers.0.mlp.gate", no ".weight") -> its own format;
  // nullopt where the file says false: not quantised.
  std::map<std::string, std::optional<QuantFormat>, std::less<>> overrides;

  // The format of a module if it is quantised at all: whether it is, its `.scales` tensor says.
  std::optional<QuantFormat> format_of(std::string_view module) const;
  bool operator==(const Quantisation&) const = default;
};

struct Config {
  uint32_t hidden = 0;
  uint32_t num_layers = 0;
  std::vector<LayerKind> layers;  // num_layers of them

  uint32_t q_heads = 0;  // a multiple of kv_heads
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;     // even
  uint32_t rotary_dims = 0;  // even, at most head_dim
  double rope_theta = 0;

  uint32_t delta_key_heads = 0;
  uint32_t delta_value_heads = 0;  // a multiple of delta_key_heads
  uint32_t delta_key_dim = 0;
  uint32_t delta_value_dim = 0;
  uint32_t conv_width = 0;  // always 4

  uint32_t experts = 0;
  uint32_t experts_per_token = 0;  // at most 16 and at most experts
  uint32_t expert_width = 0;
  uint32_t shared_width = 0;

  uint32_t vocab = 0;
  uint32_t max_positions = 0;
  double rms_eps = 0;
  bool tie_word_embeddings = false;
  uint32_t mtp_layers = 0;
  std::vector<uint32_t> eos_ids;  // may be empty; generation_config.json may say more
  Quantisation quantisation;

  uint32_t q_width() const { return q_heads * head_dim; }
  uint32_t kv_width() const { return kv_heads * head_dim; }
  uint32_t delta_key_width() const { return delta_key_heads * delta_key_dim; }
  uint32_t delta_value_width() const { return delta_value_heads * delta_value_dim; }
  uint32_t conv_channels() const { return 2 * delta_key_width() + delta_value_width(); }
  uint32_t attention_layers() const;
  uint32_t delta_layers() const { return num_layers - attention_layers(); }

  // Appends one line for everything that is wrong or that Lily does not run; never throws. The
  // result is to be used only if no line was added.
  static Config parse(const Json& json, std::vector<std::string>& problems);
  // Throws ModelError with all the problems, one a line.
  static Config parse(const Json& json);
  // Of a config.json file; every line of the error begins with its path.
  static Config read(const std::filesystem::path& path);
};

// The JSON of a config.json; throws ModelError beginning with the path.
Json read_config_json(const std::filesystem::path& path);

// "a\nb": a list of problems as the message of one ModelError.
std::string join_lines(const std::vector<std::string>& lines);

}  // namespace lily
