// A folder with a model: config.json and one or more safetensors shards, as named tensors. Says why
// when a folder is something else (GGUF, AWQ, pickled weights) or incomplete. Knows which tensors
// there are, not which there should be: that is weights.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/mapped_file.h"
#include "model/config.h"
#include "model/safetensors.h"

namespace lily {

struct CheckpointInspection;

// Immutable once open, so any thread may read it. Copies are cheap in mapped memory, not in names.
class Checkpoint {
 public:
  // Maps all shards and checks every header; reads no weight. Throws ModelError with all the
  // problems found, one a line.
  static Checkpoint open(const std::filesystem::path& folder);
  // The same for `lily info`: never throws for what is wrong with the folder, but lists it.
  static CheckpointInspection inspect(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Config& config() const { return config_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }  // sorted by name
  const TensorInfo* find(std::string_view name) const;              // nullptr where there is none
  // Each file is mapped once, whole; TensorInfo::shard and ::offset point into it.
  std::span<const std::shared_ptr<const MappedFile>> shards() const { return shards_; }
  const std::byte* data(const TensorInfo& tensor) const;
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;
  uint64_t total_bytes() const;  // of all tensors

 private:
  Checkpoint() = default;
  friend class CheckpointReader;

  std::filesystem::path folder_;
  Config config_;
  std::vector<std::shared_ptr<const MappedFile>> shards_;
  std::vector<TensorInfo> tensors_;
};

struct CheckpointInspection {
  std::optional<Config> config;          // where config.json is sound, even if the weights are not
  std::optional<Checkpoint> checkpoint;  // only if there are no problems
  std::vector<std::string> problems;     // one line each
};

}  // namespace lily
