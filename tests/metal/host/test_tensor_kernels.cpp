// The check of tensor ops with the real kernels, on a simulated GPU that runs them on fibers, some
// of them badly: it passes what is right, and nothing else, and tokens are right in any case.
#if defined(LILY_HAS_FIBERS)

#include <map>

#include "../../native/models.h"
#include "engine/engine.h"
#include "ops/tensor_check.h"
#include "probes.h"
#include "state.h"

namespace lily {
namespace {

using namespace test;

// Fibers, but for one kernel.
class Spoiled final : public simulated::Executor {
 public:
  enum class How { sound, wrong, nan, fails, missing };
  Spoiled(std::string kernel, How how) : kernel_(std::move(kernel)), how_(how) {}

  std::unique_ptr<simulated::Kernel> find(const std::string& name) override {
    if (is_spoiled(name) && how_ == How::missing) return nullptr;
    return sound_->find(name);
  }
  std::vector<std::string> names() override {
    std::vector<std::string> all = sound_->names();
    if (how_ == How::missing) {
      std::erase_if(all, [&](const std::string& name) { return is_spoiled(name); });
    }
    return all;
  }
  std::vector<simulated::Touched> run(const simulated::Launch& launch) override {
    if (!is_spoiled(launch.kernel)) return sound_->run(launch);
    if (how_ == How::fails) throw std::runtime_error("a page fault");
    std::vector<simulated::Touched> touched = sound_->run(launch);
    for (const simulated::Touched& span : touched) {
      if (span.written) spoil(reinterpret_cast<uint16_t*>(span.begin), (span.end - span.begin) / 2);
    }
    return touched;
  }

 private:
  bool is_spoiled(const std::string& name) const {
    return how_ != How::sound && name.ends_with(kernel_);
  }
  // The upper half of the last float, or the last bf16: twice as much, or none at all.
  void spoil(uint16_t* halves, size_t count) const {
    if (how_ == How::nan) halves[count - 1] = 0x7FC0;
    if (how_ == How::wrong) halves[count - 1] ^= 0x0080;
  }

  std::shared_ptr<simulated::Executor> sound_ = simulated::default_executor();
  std::string kernel_;
  How how_;
};

// A machine with tensor units, whose GPU runs the real kernels.
struct FiberMachine : Machine {
  explicit FiberMachine(std::string kernel = {}, Spoiled::How how = Spoiled::How::sound) {
    simulated::set_executor(std::make_shared<Spoiled>(std::move(kernel), how));
    settings.family = 10;
    ::setenv("HOME", folder.path().c_str(), 1);
  }
  ~FiberMachine() { simulated::set_executor(std::make_shared<ProbeExecutor>()); }

  std::shared_ptr<Device> open_with_all_kernels() const {
    return make_metal_device(
        {.cache_folder = folder.path() / "cache", .check = ops::check_tensor_kernels});
  }
};

// How often each of them ran.
std::map<std::string, int> runs_of_tensor_kernels() {
  std::map<std::string, int> runs;
  for (const simulated::Ran& ran : simulated::statistics().ran) {
    if (ran.kernel.ends_with("_tensor")) ++runs[ran.kernel];
  }
  return runs;
}

TEST(metal_checks_every_kernel_of_tensor_ops) {
  FiberMachine machine;
  const auto device = machine.open_with_all_kernels();
  CHECK_EQ(fact(*device, "tensor units"), "yes, used (self-check passed)");
  const std::map<std::string, int> runs = runs_of_tensor_kernels();
  for (const std::string& name : simulated::executor().names()) {
    if (name.ends_with("_tensor") && !runs.contains(name)) {
      fail(__FILE__, __LINE__, name + " was not checked");
    }
  }
  CHECK_EQ(runs.size(), 25u);
}

// The rest is about the choice: the address sanitizer has seen the kernels, and makes these slow.
#if defined(LILY_FIBERS_CHECKED)

TEST(metal_notices_spoiled_tensor_ops) {
  const auto why = [](const char* kernel, Spoiled::How how) {
    FiberMachine machine(kernel, how);
    const auto device = machine.open_with_all_kernels();
    CHECK(device->tiles() == Tiles::apple);
    return fact(*device, "tensor units");
  };
  const auto says = [](const std::string& text, const char* part) {
    if (text.find(part) == std::string::npos) fail(__FILE__, __LINE__, text + ": not " + part);
  };
  using enum Spoiled::How;
  says(why("linear_gemm_q4_bf16_t64_tensor", wrong), "linear_gemm_q4_bf16_t64_tensor is off by ");
  says(why("moe_grouped_gate_up_q8_bf16_t64_tensor", wrong),
       "moe_grouped_gate_up_q8_bf16_t64_tensor is off by ");
  says(why("linear_gemm_add_bf16_bf16_t64_tensor", nan),
       "linear_gemm_add_bf16_bf16_t64_tensor gives nan");
  says(why("attention_prefill_bf16_bf16_d256_tensor", nan),
       "attention_prefill_bf16_bf16_d256_tensor gives nan");
  says(why("moe_grouped_down_q4_bf16_t64_tensor", fails),
       "a page fault (code 1); it held kernel moe_grouped_down_q4_bf16_t64_tensor");
  says(why("linear_gemm_q8_bf16_t64_tensor", missing),
       "there is no kernel named 'linear_gemm_q8_bf16_t64_tensor'");
  says(why("_tensor", missing),
       "metal/tensor_ops/prefill.metal does not compile here: In file included from");
}

// A prompt whose experts have more than a tile's rows each, then steps that feed themselves.
std::vector<uint32_t> greedy_tokens(const std::filesystem::path& folder, const char* device,
                                    const std::vector<uint32_t>& prompt) {
  EngineOptions options;
  options.device = device;
  options.max_context = 128;
  options.threads = 1;
  const auto engine = Engine::load(folder, options);
  const auto session = engine->open_session(0);
  session->prefill(prompt, {});
  std::vector<uint32_t> tokens{session->sampled().token_id};
  for (int step = 0; step < 2; ++step) {
    tokens.push_back(session->step(tokens.back(), nullptr).token_id);
  }
  return tokens;
}

TEST(metal_generates_by_tensor_ops_what_the_cpu_does) {
  // "Once upon a time there was a little girl who lived near the forest with her mother.", again
  // and again.
  constexpr uint32_t kSentence[] = {1258, 971, 259, 564,  464, 333, 259,  657, 976, 448,
                                    776,  984, 261, 1742, 375, 412, 1158, 13,  220};
  std::vector<uint32_t> prompt;
  for (size_t at = 0; at < 110; ++at) prompt.push_back(kSentence[at % std::size(kSentence)]);
  FiberMachine machine;
  const std::vector<uint32_t> tokens = greedy_tokens(LILY_TINY_FOLDER, "metal", prompt);
  CHECK(tokens == greedy_tokens(LILY_TINY_FOLDER, "cpu", prompt));
  // Once by the check.
  std::map<std::string, int> runs = runs_of_tensor_kernels();
  for (const char* name :
       {"linear_gemm_q4_bf16_t64_tensor", "linear_gemm_add_q4_bf16_t64_tensor",
        "moe_grouped_gate_up_q4_bf16_t64_tensor", "moe_grouped_down_q4_bf16_t64_tensor",
        "attention_prefill_bf16_bf16_d256_tensor"}) {
    if (runs[name] < 2) fail(__FILE__, __LINE__, std::string(name) + " was not used");
  }
}

TEST(metal_generates_without_tensor_ops_that_are_spoiled) {
  const Folder folder;
  write_model(folder, config_text(64, 4, 2, 64, 5, 3, 64, 211, 128), Fill::random);
  std::vector<uint32_t> prompt;
  for (uint32_t token = 0; token < 77; ++token) prompt.push_back(token * 7 % 211);
  const std::vector<uint32_t> expected = greedy_tokens(folder.path(), "fibers", prompt);
  using enum Spoiled::How;
  for (const Spoiled::How how : {wrong, nan, fails, missing}) {
    FiberMachine machine("linear_gemm_bf16_bf16_t32_tensor", how);
    CHECK(greedy_tokens(folder.path(), "metal", prompt) == expected);
    // It is the first that is checked, and the last.
    CHECK_EQ(runs_of_tensor_kernels().size(), how == wrong || how == nan ? 1u : 0u);
    CHECK(runs_of_tensor_kernels()["linear_gemm_bf16_bf16_t32_tensor"] <= 1);
  }
}

#endif

}  // namespace
}  // namespace lily

#endif
