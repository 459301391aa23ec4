// model/config: the real model's numbers, both layouts, and each thing that Lily refuses.
#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "files.h"
#include "model/config.h"

namespace lily {
namespace {

using test::replaced;

// The text model of Qwen3.6-35B-A3B.
const std::string kText = R"("model_type": "qwen3_5_moe_text", "hidden_size": 2048,
  "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
  "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
  "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 256,
  "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
  "vocab_size": 248320, "max_position_embeddings": 262144, "rms_norm_eps": 1e-06,
  "hidden_act": "silu", "attention_bias": false, "full_attention_interval": 4,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
    "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10], "mrope_interleaved": true},
  "mtp_num_hidden_layers": 1, "eos_token_id": 248044, "tie_word_embeddings": false)";
const std::string kFlat = "{\"architectures\": [\"Qwen3_5MoeForCausalLM\"], " + kText + "}";
const std::string kNested =
    "{\"architectures\": [\"Qwen3_5MoeForConditionalGeneration\"], \"model_type\": \"qwen3_5_moe\","
    " \"vision_config\": {\"depth\": 27}, \"text_config\": {" +
    kText + "}}";

std::vector<std::string> problems_of(const std::string& text) {
  std::vector<std::string> problems;
  Config::parse(Json::parse(text), problems);
  return problems;
}

// Exactly one problem, and it contains `part`.
void expect_problem(const std::string& text, std::string_view part, int line = __builtin_LINE()) {
  const std::vector<std::string> problems = problems_of(text);
  if (problems.size() == 1 && problems[0].find(part) != std::string::npos) return;
  test::fail(__FILE__, line,
             "expected \"" + std::string(part) + "\", got " + std::to_string(problems.size()) +
                 ": " + join_lines(problems));
}

void expect_problem(std::string_view from, std::string_view to, std::string_view part,
                    int line = __builtin_LINE()) {
  expect_problem(replaced(kFlat, from, to), part, line);
}

// The flat config with more keys at the top level.
std::string with(const std::string& keys) { return "{" + keys + ", " + kFlat.substr(1); }

TEST(config_reads_the_real_model) {
  for (const std::string& text : {kFlat, kNested}) {
    const Config c = Config::parse(Json::parse(text));
    CHECK_EQ(c.hidden, 2048u);
    CHECK_EQ(c.layers.size(), 40u);
    CHECK_EQ(c.attention_layers(), 10u);
    CHECK_EQ(c.delta_layers(), 30u);
    CHECK(c.layers[3] == LayerKind::attention && c.layers[4] == LayerKind::delta);
    CHECK_EQ(c.q_width(), 4096u);
    CHECK_EQ(c.kv_width(), 512u);
    CHECK_EQ(c.rotary_dims, 64u);
    CHECK_EQ(c.rope_theta, 1e7);
    CHECK_EQ(c.conv_channels(), 8192u);
    CHECK_EQ(c.experts_per_token, 8u);
    CHECK_EQ(c.vocab, 248'320u);
    CHECK_EQ(c.max_positions, 262'144u);
    CHECK_EQ(c.rms_eps, 1e-6);
    CHECK_EQ(c.mtp_layers, 1u);
    CHECK(c.eos_ids == std::vector<uint32_t>{248'044});
    CHECK(!c.quantisation.present && !c.tie_word_embeddings);
    CHECK(!c.quantisation.format_of("lm_head"));
  }
}

TEST(config_refuses_other_models) {
  expect_problem("{\"model_type\": \"llama\"}",
                 "model_type is \"llama\"; Lily runs \"qwen3_5_moe\"");
  expect_problem("{\"model_type\": \"qwen3_5_moe\"}", "text_config is missing");
  expect_problem("{\"model_type\": \"qwen3_5_moe\", \"text_config\": 3}", "text_config is 3");
  expect_problem("{}", "model_type is missing");
  expect_problem("[]", "expected a JSON object, found an array of 0");
  expect_problem("{\"model_type\": 3}", "model_type is 3");
  expect_problem("Qwen3_5MoeForCausalLM", "Qwen3NextForCausalLM", "names \"Qwen3NextForCausalLM\"");
  expect_problem("[\"Qwen3_5MoeForCausalLM\"]", "7", "architectures is 7; expected an array");
  expect_problem(replaced(kNested, "qwen3_5_moe_text", "qwen3_next"),
                 "text_config.model_type is \"qwen3_next\"");
}

TEST(config_lists_all_that_is_missing) {
  const std::vector<std::string> problems =
      problems_of("{\"model_type\": \"qwen3_5_moe\", \"text_config\": {\"head_dim\": null}}");
  CHECK_EQ(problems.size(), 1u);
  for (const char* key : {"hidden_size", "num_hidden_layers", "head_dim", "vocab_size",
                          "layer_types", "rms_norm_eps", "rope_parameters.rope_theta",
                          "rope_parameters.partial_rotary_factor", "num_experts_per_tok"}) {
    CHECK(problems[0].find("text_config." + std::string(key)) != std::string::npos);
  }
  CHECK_THROWS(ModelError, "hidden_size",
               Config::parse(Json::parse(replaced(kFlat, "hidden_size", "h"))));
  std::string two = replaced(kFlat, "\"silu\"", "\"gelu\"");
  two = replaced(two, "\"attention_bias\": false", "\"attention_bias\": true");
  CHECK_EQ(problems_of(two).size(), 2u);
  CHECK_THROWS(ModelError, "\nhidden_act is \"gelu\"", Config::parse(Json::parse(two)));
}

TEST(config_refuses_other_mathematics) {
  expect_problem("\"attention_bias\": false", "\"attention_bias\": true", "attention_bias is true");
  expect_problem("\"silu\"", "\"gelu\"", "hidden_act is \"gelu\"; expected \"silu\"");
  expect_problem(with("\"attn_output_gate\": false"), "attn_output_gate is false");
  expect_problem(with("\"mtp_use_dedicated_embeddings\": true"), "mtp_use_dedicated_embeddings");
  expect_problem("\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 2",
                 "linear_conv_kernel_dim is 2; Lily runs 4 only");
  expect_problem("\"num_experts_per_tok\": 8", "\"num_experts_per_tok\": 17", "at most 16");
  expect_problem("\"num_experts\": 256", "\"num_experts\": 4", "there are only 4 experts");
  expect_problem("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3",
                 "num_attention_heads is 16; expected a multiple of num_key_value_heads, 3");
  expect_problem("\"linear_num_value_heads\": 32", "\"linear_num_value_heads\": 24",
                 "expected a multiple of linear_num_key_heads, 16");
}

TEST(config_bounds_every_size) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim",
        "num_key_value_heads", "linear_num_key_heads", "linear_num_value_heads",
        "linear_key_head_dim", "linear_value_head_dim", "num_experts", "linear_conv_kernel_dim",
        "num_experts_per_tok", "vocab_size", "moe_intermediate_size",
        "shared_expert_intermediate_size", "max_position_embeddings"}) {
    const std::string name = "\"" + std::string(key) + "\": ";
    for (const char* bad : {"0", "-1", "1e3", "2048.0", "\"8\"", "true", "[8]", "4294967297",
                            "9223372036854775807", "99999999999999999999", "20000000"}) {
      const std::string text = replaced(kFlat, name, name + bad + ", \"was\": ");
      const std::vector<std::string> problems = problems_of(text);
      CHECK_EQ(problems.size(), 1u);
      CHECK(!problems.empty() && problems[0].starts_with(std::string(key) + " is "));
    }
  }
}

TEST(config_rope) {
  expect_problem("\"rope_theta\": 10000000,", "", "missing: rope_parameters.rope_theta");
  expect_problem("\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"",
                 "rope_parameters.rope_type is \"yarn\"; Lily runs \"default\"");
  expect_problem("\"rope_type\": \"default\"", "\"type\": \"linear\"", "type is \"linear\"");
  expect_problem("10000000", "0", "rope_theta is 0; expected a positive number");
  expect_problem("10000000", "-1e7", "rope_theta is -10000000; expected a positive number");
  expect_problem("10000000", "\"1e7\"", "rope_theta is \"1e7\"");
  expect_problem(with("\"rope_theta\": 10000.0"), "rope_theta is 10000000, elsewhere");
  expect_problem(with("\"rope_scaling\": {\"type\": \"yarn\"}"), "rope_scaling.type is \"yarn\"");
  expect_problem(with("\"rope_scaling\": 2"), "rope_scaling is 2; expected an object");
  expect_problem("0.25", "1.5", "partial_rotary_factor is 1.5");
  expect_problem("0.25", "0.001", "gives 0 rotary dimensions");
  expect_problem("0.25", "0.1", "gives 25 rotary dimensions");
  expect_problem("\"head_dim\": 256", "\"head_dim\": 33", "head_dim is 33; expected even");
  CHECK(problems_of(with("\"rope_theta\": 1e7, \"partial_rotary_factor\": 0.25")).empty());
  CHECK(problems_of(with("\"rope_scaling\": null")).empty());
  const std::string top =
      replaced(with("\"rope_theta\": 5e6, \"partial_rotary_factor\": 0.5"),
               "\"rope_parameters\": {\"rope_type\": \"default\", "
               "\"rope_theta\": 10000000,\n    \"partial_rotary_factor\": 0.25,",
               "\"rope_scaling\": {");
  const Config config = Config::parse(Json::parse(top));
  CHECK_EQ(config.rope_theta, 5e6);
  CHECK_EQ(config.rotary_dims, 128u);
}

TEST(config_layers) {
  const std::string interval = "\"full_attention_interval\": 4";
  expect_problem(interval, "\"layer_types\": [\"full_attention\"]",
                 "layer_types has 1 entries; expected 40");
  expect_problem(interval, "\"layer_types\": 3", "layer_types is 3; expected an array");
  expect_problem(interval, "\"full_attention_interval\": 0", "full_attention_interval is 0");
  expect_problem(interval, "\"x\": 0", "missing: layer_types");
  const std::string short_model =
      replaced(kFlat, "\"num_hidden_layers\": 40", "\"num_hidden_layers\": 2");
  expect_problem(replaced(short_model, interval,
                          "\"layer_types\": [\"full_attention\", \"sliding_attention\"]"),
                 "layer_types[1] is \"sliding_attention\"");
  const Config config = Config::parse(Json::parse(
      replaced(short_model, interval,
               interval + ", \"layer_types\": [\"full_attention\", \"linear_attention\"]")));
  CHECK(config.layers == (std::vector{LayerKind::attention, LayerKind::delta}));
}

TEST(config_eos_and_tie) {
  const std::string eos = "\"eos_token_id\": 248044";
  const auto ids = [&](const std::string& value) {
    return Config::parse(Json::parse(replaced(kFlat, eos, "\"eos_token_id\": " + value))).eos_ids;
  };
  CHECK(ids("[3, 5]") == (std::vector<uint32_t>{3, 5}));
  CHECK(ids("null").empty() && ids("[]").empty());
  expect_problem(eos, "\"eos_token_id\": 248320", "eos_token_id is 248320");
  expect_problem(eos, "\"eos_token_id\": [1, -1]", "eos_token_id is -1");
  expect_problem(eos, "\"eos_token_id\": \"</s>\"", "eos_token_id is \"</s>\"");
  const Config tied = Config::parse(
      Json::parse("{\"tie_word_embeddings\": true, \"eos_token_id\": [7], " + kNested.substr(1)));
  CHECK(tied.tie_word_embeddings);
  CHECK(tied.eos_ids == std::vector<uint32_t>{7});
}

TEST(config_quantisation) {
  const std::string affine = R"({"group_size": 64, "bits": 4, "mode": "affine",
    "lm_head": {"group_size": 32, "bits": 8}, "norm": false, "embed": true, "note": "x"})";
  const std::string own = "\"quantization\": " + affine;
  const std::string both = own + ", \"quantization_config\": " + affine;
  for (const std::string& keys : {own, "\"quantization_config\": " + affine, both}) {
    const Quantisation q = Config::parse(Json::parse(with(keys))).quantisation;
    CHECK(q.present);
    CHECK(q.standard == (QuantFormat{4, 64}));
    CHECK(q.format_of("lm_head") == (QuantFormat{8, 32}));
    CHECK(q.format_of("embed") == (QuantFormat{4, 64}));
    CHECK(q.format_of("anything") == (QuantFormat{4, 64}));
    CHECK(!q.format_of("norm"));
    CHECK_EQ(q.overrides.size(), 3u);
  }
  const auto refuse = [&](std::string_view from, std::string_view to, std::string_view part,
                          int line = __builtin_LINE()) {
    expect_problem(with(replaced(own, from, to)), part, line);
  };
  refuse("\"bits\": 4", "\"bits\": 3", "quantization.bits is 3; expected 4 or 8");
  refuse("\"bits\": 4", "\"bits\": 4.0", "quantization.bits is 4");
  refuse("\"group_size\": 64", "\"group_size\": 16", "quantization.group_size is 16");
  refuse("\"bits\": 4,", "", "missing: quantization.bits");
  refuse("\"bits\": 8", "\"bits\": 6", "quantization.\"lm_head\".bits is 6");
  refuse("\"affine\"", "\"mxfp4\"", "quantization.mode is \"mxfp4\"");
  refuse("\"bits\": 8", "\"bits\": 8, \"mode\": \"nvfp4\"", "\"lm_head\".mode is \"nvfp4\"");
  refuse("\"group_size\": 32, \"bits\": 8", "", "missing: quantization.\"lm_head\".bits");
  expect_problem(with("\"quantization\": 4"), "quantization is 4; expected an object");
  expect_problem(with(replaced(both, "64", "128")), "quantization and quantization_config differ");
  for (const char* method : {"awq", "gptq", "fp8", "bitsandbytes", "compressed-tensors", "mxfp4"}) {
    expect_problem(with("\"quantization_config\": {\"quant_method\": \"" + std::string(method) +
                        "\", \"bits\": 4, \"group_size\": 128}"),
                   "quant_method is \"" + std::string(method) + "\"; Lily runs unquantised");
  }
  expect_problem(replaced(kNested, "\"hidden_size\"",
                          "\"quantization_config\": {\"quant_method\": \"fp8\"}, \"hidden_size\""),
                 "text_config.quantization_config.quant_method is \"fp8\"");
}

TEST(config_floods_are_cut) {
  std::string keys = "\"quantization\": {\"bits\": 4, \"group_size\": 64";
  for (int i = 0; i < 1000; ++i)
    keys += ", \"m" + std::to_string(i) + "\": {\"bits\": 3, \"group_size\": 64}";
  const std::vector<std::string> problems = problems_of(with(keys + "}"));
  CHECK_EQ(problems.size(), 50u);
  CHECK_EQ(problems.back(), "... and more");
}

TEST(config_of_wrong_types_only) {
  for (const char* wrong : {"true", "[]", "{}", "\"x\"", "1.5", "-1", "1e300"}) {
    std::string text = kNested;
    for (size_t at = 0; (at = text.find("\": ", at)) != std::string::npos;) {
      at += 3;
      if (text[at] == '{' || text.compare(at, 13, "\"qwen3_5_moe\"") == 0) continue;
      const size_t depth = text[at] == '[' ? text.find(']', at) : at;
      text.replace(at, text.find_first_of(",}", depth) - at, wrong);
    }
    CHECK(problems_of(text).size() > 10);
  }
}

TEST(config_file_errors_name_the_file) {
  const test::Folder folder;
  CHECK_THROWS(ModelError, "c.json: line 1, column 2", Config::read(folder.write("c.json", "{")));
  CHECK_THROWS(ModelError, "c.json: model_type is missing",
               Config::read(folder.write("c.json", "{}")));
  CHECK_THROWS(ModelError, "d.json: cannot open", Config::read(folder.path() / "d.json"));
  CHECK_EQ(Config::read(folder.write("c.json", kNested)).hidden, 2048u);
}

TEST(config_survives_every_cut) {
  for (size_t cut = 0; cut < kNested.size(); ++cut) {
    CHECK_THROWS(JsonError, "line", problems_of(kNested.substr(0, cut)));
  }
}

}  // namespace
}  // namespace lily
