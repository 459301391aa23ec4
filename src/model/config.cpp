// One pass over config.json that collects everything that is wrong, so that nobody has to fix a
// checkpoint one error at a time. Left unread on purpose: `mrope_section` and `mrope_interleaved`
// (the three position sections are equal for text), dropout, initialisers, router losses, and
// `norm_topk_prob` (transformers renormalises always).
#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/mapped_file.h"

namespace lily {
namespace {

constexpr uint64_t kMaxFileBytes = 16'000'000;
constexpr size_t kMaxProblems = 50;
constexpr size_t kMaxEosIds = 64;
constexpr uint32_t kConvWidth = 4;
constexpr uint32_t kMaxExpertsPerToken = 16;

// Far above any model of the family, and low enough that the bytes of all weights, of the KV cache
// and of the recurrent state of a whole model stay below 2^60.
struct SizeRule {
  const char* key;
  uint32_t Config::* field;
  uint32_t max;
};
constexpr uint32_t kMaxWidth = 65'536;
constexpr uint32_t kMaxHeads = 1'024;
constexpr uint32_t kMaxHeadDim = 1'024;
constexpr uint32_t kMaxTokens = 16'777'216;
constexpr SizeRule kSizes[] = {
    {"hidden_size", &Config::hidden, kMaxWidth},
    {"num_hidden_layers", &Config::num_layers, 1'024},
    {"num_attention_heads", &Config::q_heads, kMaxHeads},
    {"num_key_value_heads", &Config::kv_heads, kMaxHeads},
    {"head_dim", &Config::head_dim, kMaxHeadDim},
    {"linear_num_key_heads", &Config::delta_key_heads, kMaxHeads},
    {"linear_num_value_heads", &Config::delta_value_heads, kMaxHeads},
    {"linear_key_head_dim", &Config::delta_key_dim, kMaxHeadDim},
    {"linear_value_head_dim", &Config::delta_value_dim, kMaxHeadDim},
    {"linear_conv_kernel_dim", &Config::conv_width, 1'024},
    {"num_experts", &Config::experts, 4'096},
    {"num_experts_per_tok", &Config::experts_per_token, 4'096},
    {"moe_intermediate_size", &Config::expert_width, kMaxWidth},
    {"shared_expert_intermediate_size", &Config::shared_width, kMaxWidth},
    {"vocab_size", &Config::vocab, kMaxTokens},
    {"max_position_embeddings", &Config::max_positions, kMaxTokens},
};

constexpr const char* kRuns =
    "Lily runs \"qwen3_5_moe\" (Qwen3.6-35B-A3B) and \"qwen3_5_moe_text\"";
constexpr const char* kRunsWeights = "Lily runs unquantised weights and MLX affine quantisation";

template <class T>
bool one_of(const T& value, std::initializer_list<T> allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

class ConfigReader {
 public:
  ConfigReader(const Json& root, std::vector<std::string>& problems)
      : root_(root), problems_(problems), room_(problems.size() + kMaxProblems) {}

  Config read() {
    if (!root_.is_object()) {
      problem("expected a JSON object, found " + root_.describe());
      return {};
    }
    if (choose_level()) {
      for (const SizeRule& rule : kSizes) read_size(rule);
      read_layers();
      read_rope();
      read_rms_eps();
      read_switches();
      read_mtp();
      read_eos();
      check_relations();
    }
    read_quantisation();
    report_missing();
    return std::move(config_);
  }

 private:
  void problem(const std::string& line) {
    if (problems_.size() < room_) problems_.push_back(line);
    if (problems_.size() == room_) problems_.back() = "... and more";
  }
  void wrong(const std::string& key, const Json& found, const std::string& expected) {
    problem(key + " is " + found.describe() + "; expected " + expected);
  }
  std::string path(const std::string& key) const { return prefix_ + key; }

  // The member, or nullptr where it is missing or null.
  static const Json* member(const Json& object, std::string_view key) {
    const Json* value = object.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  const Json* text(std::string_view key) const { return member(*text_, key); }
  const Json* required(const std::string& key) {
    const Json* value = text(key);
    if (value == nullptr) missing_.push_back(path(key));
    return value;
  }

  // Finds the text model's level, and says whether this is a model to read on.
  bool choose_level() {
    check_architectures();
    const Json* type = member(root_, "model_type");
    if (type == nullptr) {
      problem(std::string("model_type is missing; ") + kRuns);
      return false;
    }
    const std::string name = type->is_string() ? type->as_string() : "";
    if (name == "qwen3_5_moe_text") return true;
    if (name != "qwen3_5_moe") {
      problem("model_type is " + type->describe() + "; " + kRuns);
      return false;
    }
    const Json* nested = member(root_, "text_config");
    if (nested == nullptr || !nested->is_object()) {
      problem("model_type is \"qwen3_5_moe\" but text_config is " +
              (nested == nullptr ? "missing" : nested->describe()));
      return false;
    }
    text_ = nested;
    prefix_ = "text_config.";
    const Json* inner = text("model_type");
    if (inner != nullptr && inner->describe() != "\"qwen3_5_moe_text\"") {
      wrong(path("model_type"), *inner, "\"qwen3_5_moe_text\"");
    }
    return true;
  }

  void check_architectures() {
    const Json* list = member(root_, "architectures");
    if (list == nullptr) return;
    if (!list->is_array()) return wrong("architectures", *list, "an array");
    for (const Json& name : list->items()) {
      if (name.is_string() &&
          one_of<std::string>(name.as_string(),
                              {"Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"})) {
        continue;
      }
      problem("architectures names " + name.describe() + "; " + kRuns);
    }
  }

  // An integer within [min, max], or 0 with a problem.
  uint32_t integer(const std::string& key, const Json& value, int64_t min, int64_t max) {
    if (value.is_int() && value.as_int() >= min && value.as_int() <= max) {
      return static_cast<uint32_t>(value.as_int());
    }
    wrong(key, value,
          "an integer from " + std::to_string(min) + " to " + grouped(static_cast<uint64_t>(max)));
    return 0;
  }

  // A finite number within (above, most], or 0 with a problem.
  double real(const std::string& key, const Json& value, double above, double most,
              const char* expected) {
    const double number = value.is_number() ? value.as_double() : above;
    if (number > above && number <= most) return number;
    wrong(key, value, expected);
    return 0;
  }

  void read_size(const SizeRule& rule) {
    if (const Json* value = required(rule.key)) {
      config_.*rule.field = integer(path(rule.key), *value, 1, rule.max);
    }
  }

  void read_layers() {
    if (const Json* types = text("layer_types")) return read_layer_types(*types);
    const Json* interval = text("full_attention_interval");
    if (interval == nullptr) {
      missing_.push_back(path("layer_types"));
      return;
    }
    const uint32_t every = integer(path("full_attention_interval"), *interval, 1, 1'024);
    if (every == 0) return;
    for (uint32_t layer = 1; layer <= config_.num_layers; ++layer) {
      config_.layers.push_back(layer % every == 0 ? LayerKind::attention : LayerKind::delta);
    }
  }

  void read_layer_types(const Json& types) {
    if (!types.is_array()) return wrong(path("layer_types"), types, "an array");
    if (config_.num_layers != 0 && types.items().size() != config_.num_layers) {
      problem(path("layer_types") + " has " + grouped(types.items().size()) +
              " entries; expected " + grouped(config_.num_layers) + " (num_hidden_layers)");
      return;
    }
    for (const Json& type : types.items()) {
      const std::string name = type.is_string() ? type.as_string() : "";
      if (name != "full_attention" && name != "linear_attention") {
        return wrong(path("layer_types") + "[" + std::to_string(config_.layers.size()) + "]", type,
                     "\"full_attention\" or \"linear_attention\"");
      }
      config_.layers.push_back(name == "full_attention" ? LayerKind::attention : LayerKind::delta);
    }
  }

  // Reads `key` from the rope dictionaries and from the top level; they must agree.
  double read_rope_number(const std::string& key, double most, const char* expected) {
    double result = 0;
    bool found = false;
    const auto take = [&](const std::string& where, const Json* value) {
      if (value == nullptr) return;
      const double number = real(where, *value, 0, most, expected);
      if (found && number != result && number != 0 && result != 0) {
        problem(where + " is " + value->describe() + ", elsewhere it is another number");
      }
      result = number;
      found = true;
    };
    take(path(key), text(key));
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      const Json* rope = text(name);
      if (rope == nullptr || !rope->is_object()) continue;
      take(path(name) + "." + key, member(*rope, key));
    }
    if (!found) missing_.push_back(path("rope_parameters.") + key);
    return result;
  }

  void read_rope() {
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      const Json* rope = text(name);
      if (rope == nullptr) continue;
      if (!rope->is_object()) {
        wrong(path(name), *rope, "an object");
        continue;
      }
      for (const char* key : {"rope_type", "type"}) {
        const Json* type = member(*rope, key);
        if (type == nullptr || type->describe() == "\"default\"") continue;
        problem(path(name) + "." + key + " is " + type->describe() +
                "; Lily runs \"default\" rotary positions only");
      }
    }
    config_.rope_theta = read_rope_number("rope_theta", 1e18, "a positive number");
    const double factor =
        read_rope_number("partial_rotary_factor", 1.0, "a number above 0, at most 1");
    const uint32_t dims = config_.head_dim;
    if (dims % 2 != 0) problem(path("head_dim") + " is " + grouped(dims) + "; expected even");
    if (factor == 0 || dims == 0) return;
    config_.rotary_dims = static_cast<uint32_t>(dims * factor);
    if (config_.rotary_dims == 0 || config_.rotary_dims % 2 != 0) {
      problem("head_dim " + grouped(dims) + " with this partial_rotary_factor gives " +
              grouped(config_.rotary_dims) + " rotary dimensions; expected even, at least 2");
    }
  }

  void read_rms_eps() {
    if (const Json* eps = required("rms_norm_eps")) {
      config_.rms_eps = real(path("rms_norm_eps"), *eps, 0, 1, "a number above 0, at most 1");
    }
  }

  void expect_bool(const std::string& key, bool expected) {
    const Json* value = text(key);
    if (value == nullptr || (value->is_bool() && value->as_bool() == expected)) return;
    wrong(path(key), *value, std::string(expected ? "true" : "false") + " in what Lily runs");
  }

  void read_switches() {
    expect_bool("attention_bias", false);
    expect_bool("attn_output_gate", true);
    expect_bool("mtp_use_dedicated_embeddings", false);
    const Json* act = text("hidden_act");
    if (act != nullptr && act->describe() != "\"silu\"") {
      wrong(path("hidden_act"), *act, "\"silu\" in what Lily runs");
    }
    // transformers ties by the outer flag where there are two.
    const Json* tie = member(root_, "tie_word_embeddings");
    if (tie == nullptr) tie = text("tie_word_embeddings");
    if (tie == nullptr) return;
    if (!tie->is_bool()) return wrong("tie_word_embeddings", *tie, "true or false");
    config_.tie_word_embeddings = tie->as_bool();
  }

  void read_mtp() {
    const std::string key = "mtp_num_hidden_layers";
    const Json* mtp = text(key);
    if (mtp == nullptr) mtp = member(root_, key);
    if (mtp != nullptr) config_.mtp_layers = integer(key, *mtp, 0, 16);
  }

  void read_eos() {
    const Json* eos = member(root_, "eos_token_id");
    if (eos == nullptr) eos = text("eos_token_id");
    if (eos == nullptr) return;
    const std::span<const Json> ids = eos->is_array() ? eos->items() : std::span(eos, 1);
    if (ids.size() > kMaxEosIds) return wrong("eos_token_id", *eos, "at most 64 ids");
    const int64_t last = static_cast<int64_t>(config_.vocab == 0 ? kMaxTokens : config_.vocab) - 1;
    for (const Json& id : ids) config_.eos_ids.push_back(integer("eos_token_id", id, 0, last));
  }

  void expect_multiple(const char* key, uint32_t value, const char* of_key, uint32_t of) {
    if (value == 0 || of == 0 || value % of == 0) return;
    problem(path(key) + " is " + grouped(value) + "; expected a multiple of " + of_key + ", " +
            grouped(of));
  }

  void check_relations() {
    const Config& c = config_;
    expect_multiple("num_attention_heads", c.q_heads, "num_key_value_heads", c.kv_heads);
    expect_multiple("linear_num_value_heads", c.delta_value_heads, "linear_num_key_heads",
                    c.delta_key_heads);
    if (c.conv_width != 0 && c.conv_width != kConvWidth) {
      problem(path("linear_conv_kernel_dim") + " is " + grouped(c.conv_width) +
              "; Lily runs 4 only");
    }
    if (c.experts != 0 && c.experts_per_token > c.experts) {
      problem(path("num_experts_per_tok") + " is " + grouped(c.experts_per_token) +
              "; there are only " + grouped(c.experts) + " experts (num_experts)");
    } else if (c.experts_per_token > kMaxExpertsPerToken) {
      problem(path("num_experts_per_tok") + " is " + grouped(c.experts_per_token) +
              "; Lily runs at most " + grouped(kMaxExpertsPerToken));
    }
  }

  void read_quantisation() {
    std::vector<const Json*> levels = {&root_};
    if (text_ != &root_) levels.push_back(text_);
    std::string first;
    for (const Json* level : levels) {
      for (const char* name : {"quantization", "quantization_config"}) {
        const Json* json = member(*level, name);
        if (json == nullptr) continue;
        const std::string where = (level == &root_ ? "" : prefix_) + name;
        const std::optional<Quantisation> found = parse_quantisation(where, *json);
        if (!found) return;
        if (!first.empty() && config_.quantisation != *found) {
          return problem(first + " and " + where + " differ");
        }
        config_.quantisation = *found;
        first = where;
      }
    }
  }

  // False, with the reason, for every way of quantising but MLX affine.
  bool is_mlx_affine(const std::string& where, const Json& json) {
    for (const char* key :
         {"quant_method", "quant_type", "quant_algo", "load_in_4bit", "load_in_8bit", "fmt"}) {
      const Json* other = member(json, key);
      if (other == nullptr || (other->is_bool() && !other->as_bool())) continue;
      problem(where + "." + key + " is " + other->describe() + "; " + kRunsWeights);
      return false;
    }
    const Json* mode = member(json, "mode");
    if (mode == nullptr || mode->describe() == "\"affine\"") return true;
    problem(where + ".mode is " + mode->describe() + "; " + kRunsWeights);
    return false;
  }

  std::optional<QuantFormat> parse_format(const std::string& where, const Json& json) {
    const Json* bits = member(json, "bits");
    const Json* group = member(json, "group_size");
    if (bits == nullptr) missing_.push_back(where + ".bits");
    if (group == nullptr) missing_.push_back(where + ".group_size");
    if (bits == nullptr || group == nullptr) return std::nullopt;
    const auto listed = [](const Json& value, std::initializer_list<int64_t> allowed) {
      return value.is_int() && one_of(value.as_int(), allowed);
    };
    const bool good_bits = listed(*bits, {4, 8});
    const bool good_group = listed(*group, {32, 64, 128});
    if (!good_bits) wrong(where + ".bits", *bits, "4 or 8 in what Lily runs");
    if (!good_group) wrong(where + ".group_size", *group, "32, 64 or 128 in what Lily runs");
    if (!good_bits || !good_group) return std::nullopt;
    return QuantFormat{static_cast<uint32_t>(bits->as_int()),
                       static_cast<uint32_t>(group->as_int())};
  }

  std::optional<Quantisation> parse_quantisation(const std::string& where, const Json& json) {
    if (!json.is_object()) {
      wrong(where, json, "an object");
      return std::nullopt;
    }
    if (!is_mlx_affine(where, json)) return std::nullopt;
    const std::optional<QuantFormat> standard = parse_format(where, json);
    if (!standard) return std::nullopt;
    Quantisation result{.present = true, .standard = *standard, .overrides = {}};
    bool good = true;
    for (const Json::Member& entry : json.members()) {
      // Other entries than objects and booleans are no modules, and mlx-lm does not look at them.
      if (entry.value.is_bool()) {
        result.overrides[entry.name] = entry.value.as_bool() ? standard : std::nullopt;
      } else if (entry.value.is_object()) {
        const std::string module = where + "." + printable(entry.name);
        const std::optional<QuantFormat> format =
            is_mlx_affine(module, entry.value) ? parse_format(module, entry.value) : std::nullopt;
        good = good && format.has_value();
        result.overrides[entry.name] = format;
      }
    }
    return good ? std::optional(std::move(result)) : std::nullopt;
  }

  void report_missing() {
    if (missing_.empty()) return;
    std::string line = "missing: ";
    for (size_t i = 0; i < missing_.size(); ++i) {
      if (i == kMaxProblems) {
        line += ", ... and more";
        break;
      }
      line += (i == 0 ? "" : ", ") + missing_[i];
    }
    problem(line);
  }

  const Json& root_;
  const Json* text_ = &root_;
  std::string prefix_;
  std::vector<std::string>& problems_;
  const size_t room_;
  std::vector<std::string> missing_;
  Config config_;
};

}  // namespace

std::optional<QuantFormat> Quantisation::format_of(std::string_view module) const {
  if (!present) return std::nullopt;
  const auto own = overrides.find(module);
  return own == overrides.end() ? standard : own->second;
}

uint32_t Config::attention_layers() const {
  return static_cast<uint32_t>(std::count(layers.begin(), layers.end(), LayerKind::attention));
}

Config Config::parse(const Json& json, std::vector<std::string>& problems) {
  return ConfigReader(json, problems).read();
}

Config Config::parse(const Json& json) {
  std::vector<std::string> problems;
  Config config = parse(json, problems);
  if (!problems.empty()) throw ModelError(join_lines(problems));
  return config;
}

Config Config::read(const std::filesystem::path& path) {
  std::vector<std::string> problems;
  Config config = parse(read_config_json(path), problems);
  for (std::string& line : problems) line.insert(0, path.string() + ": ");
  if (!problems.empty()) throw ModelError(join_lines(problems));
  return config;
}

Json read_config_json(const std::filesystem::path& path) {
  const std::string text = read_small_file(path, kMaxFileBytes);
  try {
    return Json::parse(text, {.max_bytes = kMaxFileBytes, .max_values = 1'000'000});
  } catch (const JsonError& error) {
    throw ModelError(path.string() + ": " + error.what());
  }
}

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

}  // namespace lily
