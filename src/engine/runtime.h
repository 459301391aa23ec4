// What the sessions of one engine share: the device, the weights, the rows of a chunk, and the
// prefix cache. Lives as long as the engine or any session. Whoever uses the device holds `turns`.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "device/device.h"
#include "engine/plan.h"
#include "engine/prefix_cache.h"
#include "engine/turns.h"
#include "model/forward.h"

namespace lily {

class Runtime {
 public:
  Runtime(std::shared_ptr<Device> device, Forward forward, DType kv_dtype, uint32_t chunk_tokens,
          const MemoryPlan& plan);

  Device& device() const { return *device_; }
  const Forward& forward() const { return forward_; }
  const Config& config() const { return forward_.config(); }
  DType kv_dtype() const { return kv_dtype_; }
  const MemoryPlan& plan() const { return plan_; }
  const ChunkActivations& chunk() const { return chunk_; }
  const ScoreRows& score_rows();  // allocated when first asked for; hold the turn
  PrefixCache& cache() { return cache_; }
  Turns& turns() { return turns_; }

  // Distance between the snapshots that prefill takes on its own: such that a prompt as long as the
  // context fills at most half of the cache. A multiple of the chunk.
  uint32_t snapshot_interval() const { return snapshot_interval_; }

  // Counts the memory of sessions. The prefix cache makes room for them; where that is not enough,
  // reserve throws OutOfMemory.
  void reserve(uint64_t session_bytes);
  void release(uint64_t session_bytes);

 private:
  uint32_t choose_snapshot_interval() const;

  std::shared_ptr<Device> device_;
  Forward forward_;
  DType kv_dtype_;
  MemoryPlan plan_;
  ChunkActivations chunk_;
  std::optional<ScoreRows> score_rows_;
  PrefixCache cache_;
  uint32_t snapshot_interval_;
  Turns turns_;
  std::mutex sessions_mutex_;
  uint64_t sessions_bytes_ = 0;
  uint32_t num_sessions_ = 0;
};

// Sides of a session's state (model/state.h): two where a step can be begun before it is asked for.
inline uint32_t sides_for(const Device& device) { return device.runs_behind() ? 2 : 1; }

// Rows of logits that scoring works on at a time: few enough that a large vocabulary costs little.
uint32_t score_block_rows(const Config& config, uint32_t chunk_tokens);

}  // namespace lily
