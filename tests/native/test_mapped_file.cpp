// core/mapped_file: lifetimes, and files that cannot be mapped.
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "core/mapped_file.h"
#include "files.h"

namespace lily {
namespace {

TEST(mapped_file_outlives_its_name) {
  std::shared_ptr<const MappedFile> file;
  {
    const test::Folder folder;
    file = MappedFile::open(folder.write("a", "hello"));
  }
  CHECK_EQ(file->size(), 5u);
  CHECK(std::memcmp(file->data(), "hello", 5) == 0);
}

TEST(mapped_file_may_be_empty) {
  const test::Folder folder;
  const auto file = MappedFile::open(folder.write("a", ""));
  CHECK_EQ(file->size(), 0u);
  CHECK(file->data() == nullptr && file->bytes().empty());
  CHECK_EQ(read_small_file(folder.path() / "a", 10), "");
}

TEST(mapped_file_says_why_not) {
  const test::Folder folder;
  const std::filesystem::path pipe = folder.path() / "pipe";
  CHECK_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", folder.path() / "loop");
  CHECK_THROWS(ModelError, "gone: cannot open: No such file",
               MappedFile::open(folder.path() / "gone"));
  CHECK_THROWS(ModelError, "is not a regular file", MappedFile::open(folder.path()));
  CHECK_THROWS(ModelError, "pipe: is not a regular file", MappedFile::open(pipe));
  CHECK_THROWS(ModelError, "is not a regular file", MappedFile::open("/dev/zero"));
  CHECK_THROWS(ModelError, "loop: cannot open: Too many levels",
               MappedFile::open(folder.path() / "loop"));
  CHECK_THROWS(ModelError, "is not a regular file", read_small_file(pipe, 10));
}

// A sparse file of 4 TB: 32 maps of it fill the 128 TB that a process may address.
TEST(mapped_file_gives_its_addresses_back) {
  const test::Folder folder;
  const std::filesystem::path path = folder.write("a", "");
  // 5,000 maps of 64 GB are more than any 48-bit address space (or what a sanitizer leaves of it).
  constexpr int kMaps = 5000;
  CHECK_EQ(::truncate(path.c_str(), 1LL << 36), 0);
  for (int i = 0; i < kMaps; ++i) MappedFile::open(path);
  std::vector<std::shared_ptr<const MappedFile>> held;
  CHECK_THROWS(ModelError, "a: cannot map: ",
               for (int i = 0; i < kMaps; ++i) held.push_back(MappedFile::open(path)));
  CHECK(held.size() > 10);
}

TEST(small_file_is_bounded) {
  const test::Folder folder;
  const auto path = folder.write("a", std::string("he\0lo", 5));
  CHECK_EQ(read_small_file(path, 5), std::string("he\0lo", 5));
  CHECK_THROWS(ModelError, "has 5 bytes, at most 4 are read", read_small_file(path, 4));
}

}  // namespace
}  // namespace lily
