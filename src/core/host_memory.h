// How much memory this process could have, and could still get, on this machine or in this
// container. Knows the operating system's files; knows no device and no plan.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lily {

struct HostMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  // without swapping; what files occupy in memory counts as free
};

// `root` is "/" but in tests, which keep /proc and /sys of other machines in folders.
HostMemory read_host_memory(const std::filesystem::path& root = "/");

}  // namespace lily
