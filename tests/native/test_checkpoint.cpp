// model/checkpoint: folders that are whole, and the many that are not.
#include <filesystem>
#include <fstream>
#include <string>

#include "check.h"
#include "core/error.h"
#include "files.h"
#include "model/checkpoint.h"

namespace lily {
namespace {

using test::Folder;
using test::safetensors;

const std::string kConfig = R"({"model_type": "qwen3_5_moe_text", "hidden_size": 64,
  "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
  "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
  "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "num_experts": 8,
  "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
  "vocab_size": 256, "max_position_embeddings": 512, "rms_norm_eps": 1e-06,
  "full_attention_interval": 4,
  "rope_parameters": {"rope_theta": 10000000, "partial_rotary_factor": 0.25}})";

// A shard with one F32 tensor of 2 elements for each name.
std::string shard(std::initializer_list<std::string> names) {
  std::string header = "{";
  size_t at = 0;
  for (const std::string& name : names) {
    header += (at == 0 ? "" : ",") + ("\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[2],") +
              "\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + 8) + "]}";
    at += 8;
  }
  return safetensors(header + "}", at);
}

std::string index(std::initializer_list<std::pair<std::string, std::string>> entries) {
  std::string text = "{\"metadata\": {\"total_size\": 16}, \"weight_map\": {";
  for (const auto& [tensor, file] : entries) {
    text += (text.back() == '{' ? "" : ", ") + ("\"" + tensor + "\": \"" + file + "\"");
  }
  return text + "}}";
}

void write_index(const Folder& folder, const std::string& text) {
  folder.write("config.json", kConfig);
  folder.write("model.safetensors.index.json", text);
}

void expect_error(const Folder& folder, std::string_view part, int line = __builtin_LINE()) {
  test::check_throws<ModelError>(__FILE__, line, part, [&] { Checkpoint::open(folder.path()); });
}

TEST(checkpoint_of_one_file) {
  const Folder folder;
  folder.write("config.json", kConfig);
  folder.write("model.safetensors", shard({"b", "a"}));
  folder.write("ignored.safetensors", "not even one");
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  CHECK_EQ(checkpoint.config().hidden, 64u);
  CHECK_EQ(checkpoint.shards().size(), 1u);
  CHECK_EQ(checkpoint.tensors().size(), 2u);
  CHECK_EQ(checkpoint.tensors()[0].name, "a");
  CHECK_EQ(checkpoint.total_bytes(), 16u);
  const TensorInfo* a = checkpoint.find("a");
  CHECK(a != nullptr && checkpoint.find("c") == nullptr && checkpoint.find("") == nullptr);
  CHECK_EQ(checkpoint.bytes(*a).size(), 8u);
  CHECK(checkpoint.bytes(*a)[7] == std::byte{0x11});
  CHECK(checkpoint.data(*a) == checkpoint.shards()[0]->data() + a->offset);
}

TEST(checkpoint_of_shards) {
  const Folder folder;
  write_index(folder, index({{"a", "x-2.safetensors"}, {"b", "x-1.safetensors"}}));
  folder.write("x-1.safetensors", shard({"b", "extra"}));
  folder.write("x-2.safetensors", shard({"a"}));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  CHECK_EQ(checkpoint.shards().size(), 2u);
  CHECK_EQ(checkpoint.tensors().size(), 3u);
  CHECK_EQ(checkpoint.find("a")->shard, 1u);
  CHECK_EQ(checkpoint.find("b")->shard, 0u);
}

TEST(checkpoint_without_index_takes_all_files) {
  const Folder folder;
  folder.write("config.json", kConfig);
  folder.write("one.safetensors", shard({"a"}));
  folder.write("two.safetensors", shard({"b"}));
  folder.write("._two.safetensors", "what macOS leaves on other disks");
  CHECK_EQ(Checkpoint::open(folder.path()).tensors().size(), 2u);
  folder.write("three.safetensors", shard({"b"}));
  expect_error(folder, "tensors in two shards: \"b\" (three.safetensors and two.safetensors)");
}

TEST(checkpoint_follows_links_as_the_hub_cache_has_them) {
  const Folder folder, blobs;
  blobs.write("abc", shard({"a"}));
  folder.write("config.json", kConfig);
  std::filesystem::create_symlink(blobs.path() / "abc", folder.path() / "model.safetensors");
  CHECK_EQ(Checkpoint::open(folder.path()).tensors().size(), 1u);
}

TEST(checkpoint_lists_missing_shards_at_once) {
  const Folder folder;
  write_index(folder, index({{"a", "1.safetensors"},
                             {"b", "2.safetensors"},
                             {"c", "3.safetensors"},
                             {"d", "4.safetensors"}}));
  folder.write("2.safetensors", shard({"b"}));
  std::filesystem::create_symlink("gone", folder.path() / "3.safetensors");
  std::filesystem::create_symlink("4.safetensors", folder.path() / "4.safetensors");
  expect_error(folder, "3 of 4 shards are missing: 1.safetensors, 3.safetensors, 4.safetensors");
}

TEST(checkpoint_index_that_lies) {
  const Folder folder;
  folder.write("1.safetensors", shard({"a"}));
  folder.write("2.safetensors", shard({"b"}));
  write_index(folder,
              index({{"a", "2.safetensors"}, {"b", "2.safetensors"}, {"z", "1.safetensors"}}));
  expect_error(folder,
               "names 2 tensors that are not in the shard it says: "
               "\"a\" (2.safetensors), \"z\" (1.safetensors)");
  write_index(folder, "{\"weight_map\": {\"a\": 3}}");
  expect_error(folder, "index.json: line 1, column 22: expected a string, found 3");
  write_index(folder, "{\"weight_map\": {\"a\": \"1.safetensors\", \"a\": \"2.safetensors\"}}");
  expect_error(folder, "\"a\" occurs twice");
  write_index(folder, "{\"weight_map\": {}}");
  expect_error(folder, "weight_map is empty");
  write_index(folder, "{}");
  expect_error(folder, "\"weight_map\" is missing");
  write_index(folder, "[[[");
  expect_error(folder, "index.json: line 1, column 4");
}

TEST(checkpoint_shard_names_stay_in_the_folder) {
  const Folder folder;
  folder.write("ok.safetensors", shard({"a"}));
  for (const std::string name :
       {"../ok.safetensors", "/etc/passwd", "/tmp/x.safetensors", "a/../../x.safetensors", "..",
        ".", "", ".safetensors", "sub/x.safetensors", "..\\\\x.safetensors", "C:x.safetensors",
        "model.safetensors.index.json", "x.bin", "ok.safetensors\\u0000",
        "a\\u000ab.safetensors"}) {
    write_index(folder, index({{"a", name}}));
    expect_error(folder, "names shards that are no *.safetensors file in this folder: \"");
  }
}

TEST(checkpoint_says_what_else_it_is) {
  const Folder folder;
  expect_error(folder, "config.json: is missing");
  folder.write("config.json", kConfig);
  expect_error(folder, "holds no safetensors file");
  folder.write("model.gguf", "GGUF");
  folder.write("pytorch_model.bin", "PK");
  expect_error(folder, "holds no safetensors file but GGUF (llama.cpp) weights, pickled PyTorch");
  CHECK_THROWS(ModelError, "model.gguf: GGUF (llama.cpp) weights; Lily runs folders",
               Checkpoint::open(folder.path() / "model.gguf"));
  CHECK_THROWS(ModelError, "config.json: is not a folder",
               Checkpoint::open(folder.path() / "config.json"));
  CHECK_THROWS(ModelError, "nowhere: no such folder", Checkpoint::open(folder.path() / "nowhere"));
  folder.write("model.safetensors", shard({"l.0.q_proj.qweight", "l.0.q_proj.qzeros"}));
  expect_error(folder, "AWQ or GPTQ quantised (tensor \"l.0.q_proj.qweight\")");
}

TEST(checkpoint_of_unreadable_json) {
  const Folder folder;
  folder.write("model.safetensors", shard({"a"}));
  folder.write("config.json", "{\"hidden_size\": NaN}");
  expect_error(folder, "config.json: line 1, column 17: NaN and Infinity are not JSON");
  std::filesystem::remove(folder.path() / "config.json");
  std::filesystem::create_directory(folder.path() / "config.json");
  expect_error(folder, "config.json: is not a regular file");
  std::filesystem::create_directory(folder.path() / "model.safetensors.index.json");
  expect_error(folder, "index.json: is not a regular file");
}

TEST(checkpoint_inspection_keeps_the_config) {
  const Folder folder;
  folder.write("config.json", kConfig);
  folder.write("model.safetensors", shard({"a"}).substr(0, 40));
  const CheckpointInspection broken = Checkpoint::inspect(folder.path());
  CHECK(broken.config && !broken.checkpoint);
  CHECK_EQ(broken.problems.size(), 1u);
  folder.write("config.json", "{\"model_type\": \"llama\"}");
  const CheckpointInspection worse = Checkpoint::inspect(folder.path());
  CHECK(!worse.config && !worse.checkpoint);
  CHECK_EQ(worse.problems.size(), 2u);
  CHECK(worse.problems[0].find("config.json: model_type is \"llama\"") != std::string::npos);
  CHECK(worse.problems[1].find("model.safetensors: is cut short") != std::string::npos);
}

}  // namespace
}  // namespace lily
