// POSIX open, fstat, mmap and read, each failure with the path and the system's reason.
#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace lily {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw ModelError(path.string() + ": " + what);
}

[[noreturn]] void fail_errno(const std::filesystem::path& path, const char* what) {
  const std::string reason = std::generic_category().message(errno);
  fail(path, std::string(what) + ": " + reason);
}

int open_for_reading(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer. It means nothing for regular files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_errno(path, "cannot open");
  return fd;
}

uint64_t regular_size(const std::filesystem::path& path, const Descriptor& file) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) fail_errno(path, "cannot inspect");
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
  return static_cast<uint64_t>(status.st_size);
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path, const std::byte* data, uint64_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
  }
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(open_for_reading(path));
  const uint64_t size = regular_size(path, file);
  if (size > std::numeric_limits<size_t>::max()) {
    fail(path, "has " + grouped(size) + " bytes, more than this machine can address");
  }
  // The object first, so that nothing can throw between mmap and the owner of its result.
  std::shared_ptr<MappedFile> mapped(new MappedFile(path, nullptr, size));
  if (size == 0) return mapped;
  void* address = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) fail_errno(path, "cannot map");
  mapped->data_ = static_cast<const std::byte*>(address);
  return mapped;
}

std::string read_small_file(const std::filesystem::path& path, uint64_t max_bytes) {
  const Descriptor file(open_for_reading(path));
  const uint64_t size = regular_size(path, file);
  if (size > max_bytes) {
    fail(path, "has " + grouped(size) + " bytes, at most " + grouped(max_bytes) + " are read");
  }
  std::string text(static_cast<size_t>(size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(path, "cannot read");
    if (got == 0) break;  // cut short meanwhile
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace lily
