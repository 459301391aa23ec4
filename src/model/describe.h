// What a folder holds, for people who have not loaded it: architecture, sizes, storage, and
// whatever would be refused. Reads the config and the tensor headers only, and never throws for
// their faults.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weights.h"

namespace lily {

struct Description {
  std::optional<Config> config;          // where config.json is sound
  std::optional<WeightsReport> weights;  // where the files are sound, too
  uint64_t kv_bytes_per_token = 0;       // at bf16
  uint64_t state_bytes = 0;              // recurrent state of a session
  std::vector<std::string> problems;     // one line each; empty when it loads
};

Description describe(const std::filesystem::path& folder);

}  // namespace lily
