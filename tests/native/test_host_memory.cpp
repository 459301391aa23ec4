// The memory that a plan may count on: the machine's, or the container's where that is smaller.
#include "check.h"
#include "core/host_memory.h"
#include "files.h"

namespace lily {
namespace {

constexpr const char* kMeminfo =
    "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:   12000000 kB\n";

void write_in(const test::Folder& folder, const char* path, const char* text) {
  std::filesystem::create_directories((folder.path() / path).parent_path());
  folder.write(path, text);
}

TEST(host_memory_of_a_machine) {
  const test::Folder root;
  write_in(root, "proc/meminfo", kMeminfo);
  write_in(root, "sys/fs/cgroup/memory.max", "max\n");
  const HostMemory memory = read_host_memory(root.path());
  CHECK_EQ(memory.total_bytes, 16'384'000'000u);
  CHECK_EQ(memory.available_bytes, 12'288'000'000u);
}

TEST(host_memory_of_a_container) {
  const test::Folder root;
  write_in(root, "proc/meminfo", kMeminfo);
  write_in(root, "sys/fs/cgroup/memory.max", "4000000000\n");
  write_in(root, "sys/fs/cgroup/memory.current", "3000000000\n");
  write_in(root, "sys/fs/cgroup/memory.stat", "anon 1000000000\nfile_mapped 5\nfile 2000000000\n");
  const HostMemory memory = read_host_memory(root.path());
  CHECK_EQ(memory.total_bytes, 4'000'000'000u);
  CHECK_EQ(memory.available_bytes, 3'000'000'000u);  // what files occupy can be had back
}

TEST(host_memory_of_an_old_container) {
  const test::Folder root;
  write_in(root, "proc/meminfo", kMeminfo);
  write_in(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000000\n");
  write_in(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "2500000000\n");
  const HostMemory memory = read_host_memory(root.path());
  CHECK_EQ(memory.total_bytes, 2'000'000'000u);
  CHECK_EQ(memory.available_bytes, 0u);
}

TEST(host_memory_without_any_file) {
  const test::Folder root;
  const HostMemory memory = read_host_memory(root.path());
  CHECK(memory.total_bytes > 0);
  CHECK_EQ(memory.available_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace lily
