// Finds the shards of a folder, opens them all before it complains, and merges their tensors. Shard
// names come from a file that strangers wrote: only plain names inside the folder are opened.
#include "model/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kSuffix = ".safetensors";
constexpr uint64_t kMaxIndexBytes = 64'000'000;
constexpr size_t kMaxListed = 20;

// What a folder without safetensors may hold instead, and what a file is called that shows it.
struct ForeignFile {
  std::string_view suffix;
  const char* what;
};
constexpr ForeignFile kForeignFiles[] = {
    {".gguf", "GGUF (llama.cpp) weights"}, {".ggml", "GGML weights"},
    {".bin", "pickled PyTorch weights"},   {".pt", "pickled PyTorch weights"},
    {".pth", "pickled PyTorch weights"},   {".ckpt", "pickled PyTorch weights"},
    {".npz", "NumPy (old MLX) weights"},   {".h5", "Keras weights"},
    {".msgpack", "Flax weights"},          {".onnx", "an ONNX graph"},
};

// Tensors that only quantised formats have which Lily does not run; config.json may not say so.
constexpr ForeignFile kForeignTensors[] = {
    {".qweight", "AWQ or GPTQ quantised"},
    {".weight_packed", "compressed-tensors quantised"},
    {".weight_scale", "fp8 or compressed-tensors quantised"},
    {".weight_scale_inv", "fp8 quantised"},
    {".absmax", "bitsandbytes quantised"},
};

// "a, b, c and 7 more"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMaxListed; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kMaxListed) text += " and " + grouped(names.size() - kMaxListed) + " more";
  return text;
}

// A file right inside the folder, and nothing that a path could mean besides.
bool is_shard_name(std::string_view name) {
  const bool plain = std::none_of(name.begin(), name.end(), [](unsigned char c) {
    return c < 0x20 || c == '/' || c == '\\' || c == ':';
  });
  return plain && name.size() > std::string_view(kSuffix).size() && name.ends_with(kSuffix) &&
         name.front() != '.';
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !error;
}

}  // namespace

class CheckpointReader {
 public:
  explicit CheckpointReader(const fs::path& folder) { checkpoint_.folder_ = folder; }

  CheckpointInspection read() {
    if (!check_folder()) return std::move(result_);
    read_config();
    const std::vector<std::string> names = shard_names();
    for (const std::string& name : names) open_shard(name);
    merge_tensors();
    if (complete_) check_index();
    find_foreign_tensors();
    if (result_.problems.empty()) {
      checkpoint_.config_ = *result_.config;
      result_.checkpoint = std::move(checkpoint_);
    }
    return std::move(result_);
  }

 private:
  const fs::path& folder() const { return checkpoint_.folder_; }
  void problem(const std::string& line) { result_.problems.push_back(line); }

  bool check_folder() {
    std::error_code error;
    if (fs::is_directory(folder(), error)) return true;
    const std::string name = folder().string();
    for (const ForeignFile& foreign : kForeignFiles) {
      if (!name.ends_with(foreign.suffix)) continue;
      problem(name + ": " + foreign.what + "; Lily runs folders with config.json and safetensors");
      return false;
    }
    problem(name + (is_there(folder()) ? ": is not a folder; give the folder that holds it"
                                       : ": no such folder"));
    return false;
  }

  void read_config() {
    const fs::path path = folder() / "config.json";
    if (!is_there(path)) return problem(path.string() + ": is missing");
    std::vector<std::string> found;
    try {
      Config config = Config::parse(read_config_json(path), found);
      if (found.empty()) result_.config = std::move(config);
    } catch (const ModelError& error) {
      found.push_back(error.what());
    }
    for (const std::string& line : found) {
      problem(line.starts_with(path.string()) ? line : path.string() + ": " + line);
    }
  }

  // The files to open, in order; none where the reason why not is already a problem.
  std::vector<std::string> shard_names() {
    if (is_there(folder() / kIndexName)) return names_from_index();
    if (is_there(folder() / kSingleName)) return {kSingleName};
    std::vector<std::string> names;
    std::set<std::string> foreign;
    std::error_code error;
    for (fs::directory_iterator at(folder(), error), end; !error && at != end;
         at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (is_shard_name(name)) names.push_back(name);
      for (const ForeignFile& row : kForeignFiles) {
        if (name.ends_with(row.suffix)) foreign.insert(row.what);
      }
    }
    if (error) problem(folder().string() + ": cannot list: " + error.message());
    if (names.empty() && !error) {
      const std::vector<std::string> kinds(foreign.begin(), foreign.end());
      problem(folder().string() + ": holds no safetensors file" +
              (kinds.empty() ? "" : " but " + listed(kinds) + ", which Lily does not run"));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  bool read_index() {
    const fs::path path = folder() / kIndexName;
    try {
      const Json json =
          Json::parse(read_small_file(path, kMaxIndexBytes), {.max_bytes = kMaxIndexBytes});
      for (const Json::Member& entry : json.at("weight_map").members()) {
        index_.emplace(entry.name, entry.value.as_string());
      }
      if (!index_.empty()) return true;
      problem(path.string() + ": weight_map is empty");
    } catch (const JsonError& error) {
      problem(path.string() + ": " + error.what());
    } catch (const ModelError& error) {
      problem(error.what());
    }
    return false;
  }

  std::vector<std::string> names_from_index() {
    if (!read_index()) return {};
    std::set<std::string> names;
    for (const auto& [tensor, shard] : index_) names.insert(shard);
    std::vector<std::string> good, bad, missing;
    for (const std::string& name : names) {
      if (!is_shard_name(name)) {
        bad.push_back(printable(name));
      } else if (!is_there(folder() / name)) {
        missing.push_back(name);
      } else {
        good.push_back(name);
      }
    }
    complete_ = good.size() == names.size();
    if (!bad.empty()) {
      problem((folder() / kIndexName).string() +
              ": names shards that are no *.safetensors file in this folder: " + listed(bad));
    }
    if (!missing.empty()) {
      problem(folder().string() + ": " + grouped(missing.size()) + " of " + grouped(names.size()) +
              " shards are missing: " + listed(missing));
    }
    return good;
  }

  void open_shard(const std::string& name) {
    try {
      Safetensors shard = Safetensors::open(folder() / name);
      for (TensorInfo& tensor : shard.header.tensors) {
        tensor.shard = checkpoint_.shards_.size();
        checkpoint_.tensors_.push_back(std::move(tensor));
      }
      checkpoint_.shards_.push_back(std::move(shard.file));
    } catch (const ModelError& error) {
      complete_ = false;
      problem(error.what());
    }
  }

  std::string shard_name(const TensorInfo& tensor) const {
    return checkpoint_.shards_[tensor.shard]->path().filename().string();
  }

  void merge_tensors() {
    std::vector<TensorInfo>& tensors = checkpoint_.tensors_;
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return std::tie(a.name, a.shard) < std::tie(b.name, b.shard);
    });
    std::vector<std::string> twice;
    for (size_t i = 1; i < tensors.size(); ++i) {
      if (tensors[i].name != tensors[i - 1].name) continue;
      twice.push_back(printable(tensors[i].name) + " (" + shard_name(tensors[i - 1]) + " and " +
                      shard_name(tensors[i]) + ")");
    }
    if (!twice.empty()) {
      complete_ = false;
      problem(folder().string() + ": tensors in two shards: " + listed(twice));
    }
  }

  // Every entry of the index must be where it says; tensors that it does not name are kept.
  void check_index() {
    std::vector<std::string> absent;
    for (const auto& [name, shard] : index_) {
      const TensorInfo* tensor = checkpoint_.find(name);
      if (tensor != nullptr && shard_name(*tensor) == shard) continue;
      absent.push_back(printable(name) + " (" + shard + ")");
    }
    if (absent.empty()) return;
    problem((folder() / kIndexName).string() + ": names " + grouped(absent.size()) +
            " tensors that are not in the shard it says: " + listed(absent));
  }

  void find_foreign_tensors() {
    for (const ForeignFile& foreign : kForeignTensors) {
      const auto has_suffix = [&](const TensorInfo& t) { return t.name.ends_with(foreign.suffix); };
      const std::vector<TensorInfo>& tensors = checkpoint_.tensors_;
      const auto found = std::find_if(tensors.begin(), tensors.end(), has_suffix);
      if (found == tensors.end()) continue;
      problem(folder().string() + ": " + foreign.what + " (tensor " + printable(found->name) +
              "); Lily runs unquantised weights and MLX affine quantisation");
    }
  }

  Checkpoint checkpoint_;
  CheckpointInspection result_;
  std::map<std::string, std::string> index_;  // tensor -> shard; empty without an index
  // Every shard is open, and no tensor is there twice.
  bool complete_ = true;
};

CheckpointInspection Checkpoint::inspect(const fs::path& folder) {
  return CheckpointReader(folder).read();
}

Checkpoint Checkpoint::open(const fs::path& folder) {
  CheckpointInspection inspection = inspect(folder);
  if (!inspection.checkpoint) throw ModelError(join_lines(inspection.problems));
  return std::move(*inspection.checkpoint);
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorInfo& t, std::string_view n) { return t.name < n; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

const std::byte* Checkpoint::data(const TensorInfo& tensor) const {
  return shards_.at(tensor.shard)->data() + tensor.offset;
}

std::span<const std::byte> Checkpoint::bytes(const TensorInfo& tensor) const {
  return {data(tensor), static_cast<size_t>(tensor.bytes)};
}

uint64_t Checkpoint::total_bytes() const {
  uint64_t total = 0;
  for (const TensorInfo& tensor : tensors_) total += tensor.bytes;
  return total;
}

}  // namespace lily
