// Files as bytes: a read-only memory map that lives as long as anyone holds it, and small files
// read whole. Knows no format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace lily {

// Pages are read when touched, so opening costs nothing whatever the size. A file that is cut short
// while it is mapped ends the process with SIGBUS at the next touch: that is how mmap works.
class MappedFile {
 public:
  // Throws ModelError with path and reason. Only regular files (or links to them) are taken.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::byte* data() const { return data_; }  // page-aligned; nullptr for an empty file
  uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  MappedFile(std::filesystem::path path, const std::byte* data, uint64_t size);

  std::filesystem::path path_;
  const std::byte* data_;
  uint64_t size_;
};

// A whole file; throws ModelError when it cannot be read or is larger than `max_bytes`.
std::string read_small_file(const std::filesystem::path& path, uint64_t max_bytes);

}  // namespace lily
