// See engine.h.
#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "model/arena.h"
#include "model/checkpoint.h"
#include "model/weights.h"
#include "ops/tensor_check.h"

namespace lily {
namespace {

// Tokens of a prefill chunk. Larger chunks give each expert more rows at once; smaller ones answer
// Ctrl-C sooner, which on a processor matters more. At 4,096 each of 256 experts has rows for a
// whole tile of NVIDIA's matrix units, for 1 GB of activations.
constexpr uint32_t kChunkTokensCpu = 512;
constexpr uint32_t kChunkTokensGpu = 1024;
constexpr uint32_t kChunkTokensNvidia = 4096;
constexpr uint32_t kMostChunkTokens = 8192;

DType choose_kv_dtype(const std::string& name, const Device& device) {
  if (name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  if (name == "auto") return device.name() == "cpu" ? DType::f32 : DType::bf16;
  throw InvalidInput("kv_dtype '" + name + "' is not known; expected 'auto', 'f32' or 'bf16'");
}

uint32_t choose_chunk_tokens(const EngineOptions& options, const Device& device,
                             const Config& config) {
  if (options.chunk_tokens > kMostChunkTokens) {
    throw InvalidInput("chunk_tokens is " + grouped(options.chunk_tokens) + ", expected at most " +
                       grouped(kMostChunkTokens));
  }
  const uint32_t chosen = device.name() == "cpu"    ? kChunkTokensCpu
                          : device.name() == "cuda" ? kChunkTokensNvidia
                                                    : kChunkTokensGpu;
  return std::min(options.chunk_tokens != 0 ? options.chunk_tokens : chosen, config.max_positions);
}

// Everything that is decided before memory is allocated.
struct Decisions {
  std::shared_ptr<Device> device;
  DType kv_dtype;
  uint32_t chunk_tokens;
  MemoryPlan plan;
};

Decisions decide(const Checkpoint& checkpoint, const EngineOptions& options) {
  if (options.cache_bytes < -1) {
    throw InvalidInput("cache_bytes is " + std::to_string(options.cache_bytes) +
                       ", expected -1 (chosen) or more");
  }
  const Config& config = checkpoint.config();
  Decisions made;
  made.device = open_device(
      options.device, {.threads = options.threads, .isa = {}, .check = ops::check_tensor_kernels});
  const WeightsReport report =
      inspect_weights(checkpoint, CheckDepth::headers, made.device->weight_alignment_bytes());
  check_report(checkpoint, report);
  made.kv_dtype = choose_kv_dtype(options.kv_dtype, *made.device);
  made.chunk_tokens = choose_chunk_tokens(options, *made.device, config);
  PlanInput input;
  input.mapped_bytes = report.in_place_bytes;
  input.copied_bytes = report.copied_bytes;
  input.kv_bytes_per_token = kv_bytes_per_token(config, made.kv_dtype);
  Arena state(nullptr), scratch(nullptr);
  SessionState(state, config, made.kv_dtype, 0, sides_for(*made.device));
  ChunkActivations(scratch, config, made.device->activation_dtype(), made.chunk_tokens);
  ScoreRows(scratch, config, score_block_rows(config, made.chunk_tokens));
  input.state_bytes = state.bytes();
  input.scratch_bytes = scratch.bytes();
  input.max_positions = config.max_positions;
  input.memory_total_bytes = made.device->memory_total_bytes();
  input.memory_available_bytes = made.device->memory_available_bytes();
  const PlanRequest request{options.max_context, options.cache_bytes, options.memory_limit_bytes};
  try {
    made.plan = make_plan(input, request);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(checkpoint.folder().string() + " " + error.what());
  }
  return made;
}

}  // namespace

MemoryPlan plan_memory(const std::filesystem::path& folder, const EngineOptions& options) {
  return decide(Checkpoint::open(folder), options).plan;
}

std::shared_ptr<Engine> Engine::load(const std::filesystem::path& folder,
                                     const EngineOptions& options) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const Decisions made = decide(checkpoint, options);
  Forward forward(checkpoint.config(), load_weights(checkpoint, *made.device));
  auto runtime = std::make_shared<Runtime>(made.device, std::move(forward), made.kv_dtype,
                                           made.chunk_tokens, made.plan);
  return std::shared_ptr<Engine>(new Engine(std::move(runtime)));
}

Engine::Engine(std::shared_ptr<Runtime> runtime)
    : device_name_(runtime->device().name()),
      device_description_(runtime->device().description()),
      vocab_size_(runtime->config().vocab),
      plan_(runtime->plan()),
      runtime_(std::move(runtime)) {}

const std::shared_ptr<Runtime>& Engine::open_runtime() const {
  if (!runtime_) throw InvalidInput("the engine is closed");
  return runtime_;
}

PrefixCache::Stats Engine::cache_stats() const {
  std::shared_ptr<Runtime> runtime;
  {
    std::lock_guard lock(mutex_);
    runtime = open_runtime();
  }
  return runtime->cache().stats();
}

std::shared_ptr<Session> Engine::open_session(uint32_t max_tokens) {
  if (max_tokens > plan_.max_context) {
    throw InvalidInput("max_tokens is " + grouped(max_tokens) + ", this engine's max_context is " +
                       grouped(plan_.max_context));
  }
  std::shared_ptr<Runtime> runtime;
  {
    std::lock_guard lock(mutex_);
    runtime = open_runtime();
  }
  // Without the lock: a session waits for its turn on the device, and nobody shall wait for that.
  auto session =
      std::make_shared<Session>(runtime, max_tokens != 0 ? max_tokens : plan_.max_context);
  std::lock_guard lock(mutex_);
  if (!runtime_) session->close();
  open_runtime();
  std::erase_if(sessions_, [](const auto& known) { return known.expired(); });
  sessions_.push_back(session);
  return session;
}

void Engine::close() {
  std::shared_ptr<Runtime> runtime;
  std::vector<std::weak_ptr<Session>> sessions;
  {
    std::lock_guard lock(mutex_);
    runtime.swap(runtime_);
    sessions.swap(sessions_);
  }
  if (!runtime) return;
  for (const auto& known : sessions) {
    if (const std::shared_ptr<Session> session = known.lock()) session->close();
  }
  runtime->cache().clear();
}

}  // namespace lily
