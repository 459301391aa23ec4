// See weights.h. One pass over the model states each tensor once: its name, its shape and its
// place. The same pass checks without a device and loads with one.
#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace lily {
namespace {

// What a checkpoint may hold that text generation does not read.
constexpr std::string_view kUnusedPrefixes[] = {
    "mtp.", "model.mtp.", "language_model.mtp.", "model.visual.", "vision_tower.", "visual.",
};

struct Names {
  std::string model;    // "model.language_model."
  std::string lm_head;  // module
  bool split_experts = false;
};

Names find_names(const TensorReader& reader) {
  Names names{"model.", "lm_head"};
  for (const char* prefix : {"model.", "model.language_model.", "language_model.model."}) {
    if (reader.has(std::string(prefix) + "embed_tokens.weight")) names.model = prefix;
  }
  if (names.model == "language_model.model.") names.lm_head = "language_model.lm_head";
  return names;
}

Layout find_layout(const Checkpoint& checkpoint) {
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (!tensor.name.ends_with("linear_attn.conv1d.weight") || tensor.shape.size() != 3) continue;
    return tensor.shape[1] == 1 && tensor.shape[2] != 1 ? Layout::hf : Layout::mlx;
  }
  // Without a delta layer, the names of the experts are all there is to go by.
  const auto is_split = [](const TensorInfo& t) {
    return t.name.find(".switch_mlp.") != t.name.npos;
  };
  const auto tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(), is_split) ? Layout::mlx : Layout::hf;
}

class WeightsReader {
 public:
  WeightsReader(const Checkpoint& checkpoint, TensorReader& reader)
      : config_(checkpoint.config()),
        layout_(find_layout(checkpoint)),
        names_(find_names(reader)),
        reader_(reader) {}

  Weights read() {
    const Config& c = config_;
    Weights weights;
    weights.embedding = matrix(names_.model + "embed_tokens", c.vocab, c.hidden);
    if (c.tie_word_embeddings) {
      weights.lm_head = weights.embedding;
    } else {
      weights.lm_head = matrix(names_.lm_head, c.vocab, c.hidden);
    }
    weights.final_gain = gain(names_.model + "norm.weight", c.hidden);
    weights.inv_freq = reader_.constant(inverse_frequencies());
    for (uint32_t index = 0; index < c.num_layers; ++index) {
      weights.layers.push_back(read_layer(index));
    }
    return weights;
  }

  Layout layout() const { return layout_; }
  const Names& names() const { return names_; }
  uint64_t expert_parameters() const { return expert_parameters_; }

 private:
  Matrix matrix(const std::string& module, uint64_t rows, uint64_t cols) {
    return reader_.place(reader_.matrix(module, rows, cols));
  }
  // A norm that HF stores as its distance from one.
  Tensor gain(const std::string& name, uint64_t size) {
    const bool centred = layout_ == Layout::hf;
    return reader_.small(name, {size}, {size},
                         centred ? Transform::one_plus : Transform::as_stored);
  }

  // In f32 as transformers computes it, so that long contexts turn by the same angles.
  std::vector<float> inverse_frequencies() const {
    std::vector<float> values;
    for (uint32_t i = 0; i < config_.rotary_dims; i += 2) {
      const float exponent = static_cast<float>(i) / static_cast<float>(config_.rotary_dims);
      values.push_back(1.0f / std::pow(static_cast<float>(config_.rope_theta), exponent));
    }
    return values;
  }

  LayerWeights read_layer(uint32_t index) {
    const std::string prefix = names_.model + "layers." + std::to_string(index) + ".";
    LayerWeights layer;
    layer.kind = config_.layers[index];
    layer.mixer_gain = gain(prefix + "input_layernorm.weight", config_.hidden);
    layer.moe_gain = gain(prefix + "post_attention_layernorm.weight", config_.hidden);
    if (layer.kind == LayerKind::attention) {
      layer.attention = read_attention(prefix + "self_attn.");
    } else {
      layer.delta = read_delta(prefix + "linear_attn.");
    }
    layer.moe = read_moe(prefix + "mlp.");
    return layer;
  }

  AttentionWeights read_attention(const std::string& prefix) {
    const Config& c = config_;
    return {.q = matrix(prefix + "q_proj", 2ull * c.q_width(), c.hidden),
            .k = matrix(prefix + "k_proj", c.kv_width(), c.hidden),
            .v = matrix(prefix + "v_proj", c.kv_width(), c.hidden),
            .o = matrix(prefix + "o_proj", c.hidden, c.q_width()),
            .q_gain = gain(prefix + "q_norm.weight", c.head_dim),
            .k_gain = gain(prefix + "k_norm.weight", c.head_dim)};
  }

  DeltaWeights read_delta(const std::string& prefix) {
    const Config& c = config_;
    const uint64_t channels = c.conv_channels(), heads = c.delta_value_heads;
    const std::vector<uint64_t> conv_shape = layout_ == Layout::hf
                                                 ? std::vector<uint64_t>{channels, 1, kConvWidth}
                                                 : std::vector<uint64_t>{channels, kConvWidth, 1};
    return {.qkv = matrix(prefix + "in_proj_qkv", channels, c.hidden),
            .z = matrix(prefix + "in_proj_z", c.delta_value_width(), c.hidden),
            .b = matrix(prefix + "in_proj_b", heads, c.hidden),
            .a = matrix(prefix + "in_proj_a", heads, c.hidden),
            .out = matrix(prefix + "out_proj", c.hidden, c.delta_value_width()),
            .conv_weight = reader_.small(prefix + "conv1d.weight", conv_shape,
                                         {channels, kConvWidth}, Transform::as_stored),
            .decay_rate = reader_.small(prefix + "A_log", {heads}, {heads}, Transform::minus_exp),
            .dt_bias = reader_.small(prefix + "dt_bias", {heads}, {heads}, Transform::as_stored),
            .gain = reader_.small(prefix + "norm.weight", {c.delta_value_dim}, {c.delta_value_dim},
                                  Transform::as_stored)};
  }

  ops::MoeWeights read_moe(const std::string& prefix) {
    const Config& c = config_;
    ops::MoeWeights moe;
    moe.slots = c.experts_per_token;
    std::tie(moe.router, moe.shared_router) =
        reader_.place_alike(reader_.matrix(prefix + "gate", c.experts, c.hidden),
                            reader_.matrix(prefix + "shared_expert_gate", 1, c.hidden));
    const std::string shared = prefix + "shared_expert.";
    std::tie(moe.shared_gate, moe.shared_up) =
        reader_.place_alike(reader_.matrix(shared + "gate_proj", c.shared_width, c.hidden),
                            reader_.matrix(shared + "up_proj", c.shared_width, c.hidden));
    moe.shared_down = matrix(shared + "down_proj", c.hidden, c.shared_width);
    const uint64_t before = reader_.parameters();
    if (reader_.has(prefix + "switch_mlp.gate_proj.weight") || layout_ == Layout::mlx) {
      read_split_experts(prefix + "switch_mlp.", moe);
    } else {
      read_fused_experts(prefix + "experts.", moe);
    }
    expert_parameters_ += reader_.parameters() - before;
    return moe;
  }

  void read_split_experts(const std::string& prefix, ops::MoeWeights& moe) {
    const Config& c = config_;
    std::tie(moe.gate, moe.up) = reader_.place_alike(
        reader_.stack(prefix + "gate_proj", c.experts, c.expert_width, c.hidden),
        reader_.stack(prefix + "up_proj", c.experts, c.expert_width, c.hidden));
    moe.down =
        reader_.place(reader_.stack(prefix + "down_proj", c.experts, c.hidden, c.expert_width));
  }

  // Per expert, the rows of gate and then those of up.
  void read_fused_experts(const std::string& prefix, ops::MoeWeights& moe) {
    const Config& c = config_;
    MatrixSource half =
        reader_.fused_stack(prefix + "gate_up_proj", c.experts, 2ull * c.expert_width, c.hidden);
    half.rows = c.expert_width;
    moe.gate = reader_.place(half);
    half.first_row = c.expert_width;
    moe.up = reader_.place(half);
    moe.down = reader_.place(
        reader_.fused_stack(prefix + "down_proj", c.experts, c.hidden, c.expert_width));
  }

  const Config& config_;
  Layout layout_;
  Names names_;
  TensorReader& reader_;
  uint64_t expert_parameters_ = 0;
};

std::string_view unused_prefix(std::string_view name) {
  for (const std::string_view prefix : kUnusedPrefixes) {
    if (name.starts_with(prefix)) return prefix;
  }
  return {};
}

// Sorts what nothing asked for into known and unexpected.
void report_untouched(TensorReader& reader, const Config& config, const Names& names,
                      std::vector<std::string>& unused) {
  std::map<std::string, uint64_t> known;
  for (const TensorInfo* tensor : reader.untouched()) {
    if (const std::string_view prefix = unused_prefix(tensor->name); !prefix.empty()) {
      ++known[std::string(prefix) + "*"];
    } else if (config.tie_word_embeddings && tensor->name.starts_with(names.lm_head + ".")) {
      ++known[names.lm_head + ".* (tied to the embedding)"];
    } else {
      reader.problem("unexpected: " + printable(tensor->name) + " (" +
                     printable(tensor->dtype_name) + " " + tensor->shape_text() + ")");
    }
  }
  for (const auto& [name, count] : known) {
    unused.push_back(name + " (" + grouped(count) + (count == 1 ? " tensor)" : " tensors)"));
  }
}

// 0, 1, 2, 5 -> "0-2,5"
std::string ranges(const std::vector<uint32_t>& sorted) {
  std::string text;
  for (size_t i = 0; i < sorted.size();) {
    size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(sorted[i]);
    if (end > i + 1) text += "-" + std::to_string(sorted[end - 1]);
    i = end;
  }
  return text;
}

// Lines that differ in the layer only become one: "missing: model.layers.{0-2,5}.mlp.gate.weight".
std::vector<std::string> fold_layers(const std::vector<std::string>& lines) {
  struct Fold {
    std::string line, head, tail;
    std::vector<uint32_t> layers;
  };
  std::vector<Fold> folds;
  std::map<std::string, size_t> by_text;
  constexpr std::string_view kMark = ".layers.";
  for (const std::string& line : lines) {
    const size_t mark = line.find(kMark);
    const size_t begin = mark == line.npos ? line.npos : mark + kMark.size();
    const size_t end = begin == line.npos ? line.npos : line.find_first_not_of("0123456789", begin);
    const bool numbered = end != line.npos && end > begin && end - begin < 9;
    const std::string head = numbered ? line.substr(0, begin) : line;
    const std::string tail = numbered ? line.substr(end) : "";
    const auto [at, is_new] = by_text.emplace(head + '\n' + tail, folds.size());
    if (is_new) folds.push_back({line, head, tail, {}});
    if (numbered) folds[at->second].layers.push_back(std::stoul(line.substr(begin, end - begin)));
  }
  std::vector<std::string> result;
  for (Fold& fold : folds) {
    std::sort(fold.layers.begin(), fold.layers.end());
    result.push_back(fold.layers.size() < 2
                         ? fold.line
                         : fold.head + "{" + ranges(fold.layers) + "}" + fold.tail);
  }
  return result;
}

}  // namespace

const char* layout_name(Layout layout) { return layout == Layout::hf ? "hf" : "mlx"; }

WeightsReport inspect_weights(const Checkpoint& checkpoint, CheckDepth depth,
                              size_t alignment_bytes) {
  TensorReader reader(checkpoint, depth, alignment_bytes);
  WeightsReader model(checkpoint, reader);
  model.read();  // for its checks
  const Config& config = checkpoint.config();
  WeightsReport report;
  report.layout = model.layout();
  report_untouched(reader, config, model.names(), report.unused);
  report.problems = fold_layers(reader.problems());
  report.format_bytes = reader.format_bytes();
  report.parameters = reader.parameters();
  const uint64_t idle_experts =
      model.expert_parameters() / config.experts * (config.experts - config.experts_per_token);
  const uint64_t looked_up =
      config.tie_word_embeddings ? 0 : uint64_t{config.vocab} * config.hidden;
  const uint64_t idle = idle_experts + looked_up;
  report.active_parameters = report.parameters > idle ? report.parameters - idle : 0;
  report.in_place_bytes = reader.in_place_bytes();
  report.copied_bytes = reader.copied_bytes();
  return report;
}

void check_report(const Checkpoint& checkpoint, const WeightsReport& report) {
  const size_t count = report.problems.size();
  if (count == 0) return;
  std::string text = checkpoint.folder().string() + ": " + grouped(count) +
                     (count == 1 ? " problem" : " problems") + " with the tensors";
  for (const std::string& line : report.problems) text += "\n  " + line;
  throw ModelError(text);
}

Weights load_weights(const Checkpoint& checkpoint, Device& device) {
  check_report(checkpoint,
               inspect_weights(checkpoint, CheckDepth::values, device.weight_alignment_bytes()));
  TensorReader reader(checkpoint, device);
  return WeightsReader(checkpoint, reader).read();
}

}  // namespace lily
