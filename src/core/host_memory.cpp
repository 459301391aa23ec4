// See host_memory.h. A container's limit (cgroup v2, v1) is smaller than the machine that it runs
// on.
#include "core/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace lily {
namespace {

// The number behind `key` in a file of "key number" lines; kilobytes where the line says so.
std::optional<uint64_t> find_number(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t digit = line.find_first_of("0123456789", key.size());
    if (digit == std::string::npos) continue;
    const uint64_t unit = line.find("kB", digit) == std::string::npos ? 1 : 1024;
    return std::strtoull(line.c_str() + digit, nullptr, 10) * unit;
  }
  return std::nullopt;
}

// A file that holds one number. "max", as cgroups say where there is no limit, is none.
std::optional<uint64_t> read_number(const std::filesystem::path& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

struct Cgroup {
  std::filesystem::path folder;
  const char *limit, *usage, *file_key;
};

// Narrows `memory` to a cgroup's limit, where there is one.
void apply_cgroup(const Cgroup& group, HostMemory& memory) {
  const std::optional<uint64_t> limit = read_number(group.folder / group.limit);
  if (!limit || *limit >= memory.total_bytes) return;
  memory.total_bytes = *limit;
  const uint64_t used = read_number(group.folder / group.usage).value_or(0);
  const uint64_t files = find_number(group.folder / "memory.stat", group.file_key).value_or(0);
  const uint64_t held = used > files ? used - files : 0;
  memory.available_bytes = std::min(memory.available_bytes, *limit > held ? *limit - held : 0);
}

}  // namespace

HostMemory read_host_memory(const std::filesystem::path& root) {
  HostMemory memory;
  memory.total_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const std::filesystem::path meminfo = root / "proc/meminfo";
  memory.total_bytes = find_number(meminfo, "MemTotal:").value_or(memory.total_bytes);
  memory.available_bytes = find_number(meminfo, "MemAvailable:").value_or(memory.total_bytes);
  apply_cgroup({root / "sys/fs/cgroup", "memory.max", "memory.current", "file "}, memory);
  apply_cgroup({root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                "total_cache "},
               memory);
  return memory;
}

}  // namespace lily
