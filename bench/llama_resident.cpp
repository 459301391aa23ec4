// A llama.cpp model that stays loaded and runs lengths when asked: the peer of `bench resident`.
// Reads lines "prompt_tokens decode_tokens prompt_number" and answers each with a line of JSON.
// Uses llama.cpp's public header alone. Like llama-bench it decodes given tokens and picks none.
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Free {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
};

constexpr uint64_t kHash = 2654435761, kFar = 104729;  // as bench/worker.py
constexpr uint32_t kMicroBatch = 2048;

// Whether ggml replays a CUDA graph instead of launching kernel by kernel, from what it logs. A
// build without graphs says nothing, and decodes at half the speed.
bool replays_a_graph = false;

void listen(ggml_log_level level, const char* text, void*) {
  if (std::strstr(text, "CUDA graph warmup complete") != nullptr) replays_a_graph = true;
  if (std::strstr(text, "CUDA graph warmup reset") != nullptr) replays_a_graph = false;
  if (level >= GGML_LOG_LEVEL_WARN) std::fputs(text, stderr);
}

llama_token synthetic_id(uint64_t place, uint64_t prompt, uint64_t vocab) {
  return static_cast<llama_token>(((place + prompt * kFar) * kHash & 0xffffffffu) % vocab);
}

class Resident {
 public:
  Resident(const char* path, uint32_t context_tokens) {
    llama_backend_init();
    llama_model_params model = llama_model_default_params();
    model.n_gpu_layers = 999;
    model_.reset(llama_model_load_from_file(path, model));
    if (!model_) throw std::runtime_error("the model does not load");
    llama_context_params settings = llama_context_default_params();
    settings.n_ctx = context_tokens;
    settings.n_batch = settings.n_ubatch = kMicroBatch;
    settings.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    settings.no_perf = true;
    context_.reset(llama_init_from_model(model_.get(), settings));
    if (!context_) throw std::runtime_error("there is no memory for the context");
    vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
  }

  void run(uint32_t prompt_tokens, uint32_t decode_tokens, uint64_t prompt) {
    llama_memory_clear(llama_get_memory(context_.get()), true);
    llama_synchronize(context_.get());
    uint64_t place = 0;
    const auto begin = Clock::now();
    for (uint32_t left = prompt_tokens; left > 0;) {
      const uint32_t count = std::min(left, kMicroBatch);
      decode(place, count, prompt);
      place += count, left -= count;
    }
    const auto middle = Clock::now();
    uint32_t replayed_steps = 0;
    for (uint32_t step = 0; step < decode_tokens; ++step) {
      decode(place++, 1, prompt);
      replayed_steps += replays_a_graph;
    }
    const auto end = Clock::now();
    const auto seconds = [](auto time) { return std::chrono::duration<double>(time).count(); };
    std::printf("{\"prefill_s\": %.9f, \"decode_s\": %.9f, \"replayed_steps\": %u}\n",
                seconds(middle - begin), seconds(end - middle), replayed_steps);
    std::fflush(stdout);
  }

 private:
  // Logits of the last token only, which is what llama_batch_get_one asks for; they are waited for.
  void decode(uint64_t place, uint32_t count, uint64_t prompt) {
    std::vector<llama_token> tokens;
    for (uint32_t at = 0; at < count; ++at)
      tokens.push_back(synthetic_id(place + at, prompt, vocab_));
    const llama_batch batch = llama_batch_get_one(tokens.data(), static_cast<int32_t>(count));
    if (llama_decode(context_.get(), batch) != 0) throw std::runtime_error("llama_decode failed");
    llama_synchronize(context_.get());
  }

  std::unique_ptr<llama_model, Free> model_;
  std::unique_ptr<llama_context, Free> context_;
  uint64_t vocab_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: llama_resident MODEL.gguf CONTEXT_TOKENS");
  llama_log_set(listen, nullptr);
  Resident resident(argv[1], static_cast<uint32_t>(std::stoul(argv[2])));
  std::printf("{\"about\": \"llama.cpp, %s\"}\n", llama_print_system_info());
  std::fflush(stdout);
  uint32_t prompt_tokens = 0, decode_tokens = 0;
  uint64_t prompt = 0;
  while (std::cin >> prompt_tokens >> decode_tokens >> prompt) {
    resident.run(prompt_tokens, decode_tokens, prompt);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "llama_resident: %s\n", error.what());
  return 1;
}
