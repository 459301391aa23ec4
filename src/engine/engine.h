// A loaded model and the sessions on it. Owns the order of loading: read the headers, plan the
// memory, refuse or go on, then map the weights. Knows no text and no Python.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "engine/prefix_cache.h"
#include "engine/runtime.h"
#include "engine/session.h"

namespace lily {

struct EngineOptions {
  std::string device = "auto";
  std::string kv_dtype = "auto";    // "f32" or "bf16"; auto: f32 on the CPU, where exactness costs
                                    // only memory, bf16 elsewhere
  uint32_t max_context = 0;         // 0: chosen by the plan
  int64_t cache_bytes = -1;         // -1: chosen by the plan; 0: no prefix cache
  uint64_t memory_limit_bytes = 0;  // 0: what the machine has
  uint32_t threads = 0;             // 0: all
  uint32_t chunk_tokens = 0;        // 0: chosen by the device
};

// What `load` would plan; reads headers only. Throws as load does.
MemoryPlan plan_memory(const std::filesystem::path& folder, const EngineOptions& options);

class Engine {
 public:
  static std::shared_ptr<Engine> load(const std::filesystem::path& folder,
                                      const EngineOptions& options);

  // Of the device and the model; true after close, too.
  const std::string& device_name() const { return device_name_; }
  const std::string& device_description() const { return device_description_; }
  uint32_t vocab_size() const { return vocab_size_; }
  const MemoryPlan& plan() const { return plan_; }

  PrefixCache::Stats cache_stats() const;
  // max_tokens 0: the engine's max_context.
  std::shared_ptr<Session> open_session(uint32_t max_tokens);
  // From any thread: waits for the calls that run (they end after their chunk), closes all sessions
  // and frees the memory. Later calls raise InvalidInput. Without it, the engine's memory lives as
  // long as its last session.
  void close();

 private:
  explicit Engine(std::shared_ptr<Runtime> runtime);
  const std::shared_ptr<Runtime>& open_runtime() const;  // hold the mutex

  std::string device_name_, device_description_;
  uint32_t vocab_size_;
  MemoryPlan plan_;
  mutable std::mutex mutex_;
  std::shared_ptr<Runtime> runtime_;  // empty once closed
  std::vector<std::weak_ptr<Session>> sessions_;
};

}  // namespace lily
