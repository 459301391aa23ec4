// See runtime.h.
#include "engine/runtime.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "model/arena.h"

namespace lily {
namespace {

constexpr uint64_t kScoreBytes = uint64_t{32} << 20;
constexpr uint32_t kMostScoreRows = 64;

ChunkActivations make_chunk(Device& device, const Config& config, uint32_t chunk_tokens) {
  Arena arena(&device);
  return ChunkActivations(arena, config, device.activation_dtype(), chunk_tokens);
}

}  // namespace

uint32_t score_block_rows(const Config& config, uint32_t chunk_tokens) {
  const uint64_t rows = kScoreBytes / (uint64_t{config.vocab} * sizeof(float));
  const uint64_t most = std::min(kMostScoreRows, chunk_tokens);
  return static_cast<uint32_t>(std::clamp<uint64_t>(rows, 1, most));
}

Runtime::Runtime(std::shared_ptr<Device> device, Forward forward, DType kv_dtype,
                 uint32_t chunk_tokens, const MemoryPlan& plan)
    : device_(std::move(device)),
      forward_(std::move(forward)),
      kv_dtype_(kv_dtype),
      plan_(plan),
      chunk_(make_chunk(*device_, forward_.config(), chunk_tokens)),
      cache_(plan.cache_bytes),
      snapshot_interval_(choose_snapshot_interval()),
      turns_(device_->lanes()) {}

const ScoreRows& Runtime::score_rows() {
  if (!score_rows_) {
    Arena arena(device_.get());
    score_rows_.emplace(arena, config(), score_block_rows(config(), chunk_.capacity));
  }
  return *score_rows_;
}

uint32_t Runtime::choose_snapshot_interval() const {
  Arena counter(nullptr);
  const SessionState state(counter, config(), kv_dtype_, 1, 1);
  const uint64_t half = plan_.cache_bytes / 2;
  const uint64_t context = plan_.max_context;
  const uint64_t chunk = chunk_.capacity;
  if (half <= plan_.kv_bytes) return plan_.max_context;
  const uint64_t snapshots =
      (half - plan_.kv_bytes) / std::max<uint64_t>(1, state.recurrent_bytes());
  if (snapshots == 0) return plan_.max_context;
  const uint64_t interval = (context + snapshots - 1) / snapshots;
  return static_cast<uint32_t>((interval + chunk - 1) / chunk * chunk);
}

void Runtime::reserve(uint64_t session_bytes) {
  std::lock_guard lock(sessions_mutex_);
  const uint64_t fixed = plan_.weights_bytes + plan_.scratch_bytes + sessions_bytes_;
  const uint64_t needed = fixed + session_bytes;
  if (needed > plan_.limit_bytes) {
    throw OutOfMemory(
        "a session of " + human_bytes(session_bytes) + " does not fit: " + human_bytes(fixed) +
        " of " + human_bytes(plan_.limit_bytes) + " are taken by the weights and " +
        grouped(num_sessions_) + " open sessions; close one, or ask for fewer max_tokens");
  }
  sessions_bytes_ += session_bytes;
  ++num_sessions_;
  cache_.set_budget(std::min(plan_.cache_bytes, plan_.limit_bytes - needed));
}

void Runtime::release(uint64_t session_bytes) {
  std::lock_guard lock(sessions_mutex_);
  sessions_bytes_ -= session_bytes;
  --num_sessions_;
  const uint64_t taken = plan_.weights_bytes + plan_.scratch_bytes + sessions_bytes_;
  cache_.set_budget(std::min(plan_.cache_bytes, plan_.limit_bytes - taken));
}

}  // namespace lily
