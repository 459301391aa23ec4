// For tests: whole checkpoints, as small or as large as wanted. A file is filled with pseudo-random
// weights, or left sparse, so that the real model's shapes cost no disk.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "files.h"
#include "model/config.h"

namespace lily::test {

using Tokens = std::vector<uint32_t>;

// Tokens of small_config()'s vocabulary.
inline Tokens prompt(uint32_t seed, size_t size) {
  Tokens tokens(size);
  for (uint32_t& token : tokens) token = (seed = seed * 1664525u + 1013904223u) % 211;
  return tokens;
}

// Text-only config.json with these extents.
inline std::string config_text(uint32_t hidden, uint32_t layers, uint32_t heads, uint32_t dim,
                               uint32_t experts, uint32_t slots, uint32_t width, uint32_t vocab,
                               uint32_t positions) {
  const auto entry = [](const char* key, uint64_t value) {
    return std::string("\"") + key + "\": " + std::to_string(value) + ", ";
  };
  const uint32_t quarter = dim / 4;
  const std::string section =
      std::to_string(quarter / 2 - quarter / 4) + ", " + std::to_string(quarter / 4) + ", 0";
  return "{" + entry("hidden_size", hidden) + entry("num_hidden_layers", layers) +
         entry("num_attention_heads", heads) + entry("num_key_value_heads", 2) +
         entry("head_dim", dim) + entry("linear_num_key_heads", heads) +
         entry("linear_num_value_heads", 2 * heads) + entry("linear_key_head_dim", dim / 2) +
         entry("linear_value_head_dim", dim / 2) + entry("linear_conv_kernel_dim", 4) +
         entry("num_experts", experts) + entry("num_experts_per_tok", slots) +
         entry("moe_intermediate_size", width) + entry("shared_expert_intermediate_size", width) +
         entry("vocab_size", vocab) + entry("max_position_embeddings", positions) +
         entry("full_attention_interval", 4) + entry("eos_token_id", 1) +
         R"("model_type": "qwen3_5_moe_text", "architectures": ["Qwen3_5MoeForCausalLM"],
            "rms_norm_eps": 1e-06, "hidden_act": "silu", "attention_bias": false,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
            "partial_rotary_factor": 0.25, "mrope_section": [)" +
         section + R"(], "mrope_interleaved": true}, "tie_word_embeddings": false})";
}

// Four layers, five experts, 211 tokens.
inline std::string small_config() { return config_text(32, 4, 2, 16, 5, 3, 24, 211, 512); }
// Qwen3.6-35B-A3B.
inline std::string real_config() {
  return config_text(2048, 40, 16, 256, 256, 8, 512, 248320, 262144);
}

struct NamedShape {
  std::string name;
  std::vector<uint64_t> shape;
};

inline std::vector<NamedShape> tensors_of(const Config& c) {
  std::vector<NamedShape> all{{"model.embed_tokens.weight", {c.vocab, c.hidden}},
                              {"model.norm.weight", {c.hidden}},
                              {"lm_head.weight", {c.vocab, c.hidden}}};
  for (uint32_t layer = 0; layer < c.num_layers; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    const auto add = [&](const char* name, std::vector<uint64_t> shape) {
      all.push_back({p + name, std::move(shape)});
    };
    add("input_layernorm.weight", {c.hidden});
    add("post_attention_layernorm.weight", {c.hidden});
    if (c.layers[layer] == LayerKind::attention) {
      add("self_attn.q_proj.weight", {2 * c.q_width(), c.hidden});
      add("self_attn.k_proj.weight", {c.kv_width(), c.hidden});
      add("self_attn.v_proj.weight", {c.kv_width(), c.hidden});
      add("self_attn.o_proj.weight", {c.hidden, c.q_width()});
      add("self_attn.q_norm.weight", {c.head_dim});
      add("self_attn.k_norm.weight", {c.head_dim});
    } else {
      add("linear_attn.in_proj_qkv.weight", {c.conv_channels(), c.hidden});
      add("linear_attn.in_proj_z.weight", {c.delta_value_width(), c.hidden});
      add("linear_attn.in_proj_b.weight", {c.delta_value_heads, c.hidden});
      add("linear_attn.in_proj_a.weight", {c.delta_value_heads, c.hidden});
      add("linear_attn.conv1d.weight", {c.conv_channels(), 1, 4});
      add("linear_attn.A_log", {c.delta_value_heads});
      add("linear_attn.dt_bias", {c.delta_value_heads});
      add("linear_attn.norm.weight", {c.delta_value_dim});
      add("linear_attn.out_proj.weight", {c.hidden, c.delta_value_width()});
    }
    add("mlp.gate.weight", {c.experts, c.hidden});
    add("mlp.experts.gate_up_proj", {c.experts, 2 * c.expert_width, c.hidden});
    add("mlp.experts.down_proj", {c.experts, c.hidden, c.expert_width});
    add("mlp.shared_expert.gate_proj.weight", {c.shared_width, c.hidden});
    add("mlp.shared_expert.up_proj.weight", {c.shared_width, c.hidden});
    add("mlp.shared_expert.down_proj.weight", {c.hidden, c.shared_width});
    add("mlp.shared_expert_gate.weight", {1, c.hidden});
  }
  return all;
}

enum class Fill : uint8_t { random, sparse };

// bf16 in one file. Random weights lie between -0.5 and 0.5, which any of the tensors may.
inline void write_model(const Folder& folder, const std::string& config, Fill fill) {
  folder.write("config.json", config);
  std::string header = "{";
  uint64_t end = 0;
  for (const NamedShape& tensor : tensors_of(Config::parse(Json::parse(config)))) {
    uint64_t bytes = 2;
    std::string shape;
    for (const uint64_t extent : tensor.shape) {
      bytes *= extent;
      shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    }
    header += (end == 0 ? "\"" : ", \"") + tensor.name + "\": {\"dtype\": \"BF16\", \"shape\": [" +
              shape + "], \"data_offsets\": [" + std::to_string(end) + ", " +
              std::to_string(end + bytes) + "]}";
    end += bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes = little_endian(header.size()) + header;
  const uint64_t size = bytes.size() + end;
  uint32_t random = 12345;
  for (uint64_t i = 0; fill == Fill::random && i < end; i += 2) {
    random = random * 1664525u + 1013904223u;
    const float value = static_cast<float>(random >> 8) / static_cast<float>(1 << 24) - 0.5f;
    bytes.append(reinterpret_cast<const char*>(&value) + 2, 2);
  }
  const auto path = folder.write("model.safetensors", bytes);
  if (::truncate(path.c_str(), static_cast<off_t>(size)) != 0) {
    throw std::runtime_error("cannot make " + path.string());
  }
}

}  // namespace lily::test
