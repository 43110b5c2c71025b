#include "device/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "device/error.h"

namespace strata::device {
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

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  // Non-blocking, so that a pipe in a file's place is refused instead of waited for.
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const Exit code = errno == ENOENT || errno == ENOTDIR ? Exit::usage : Exit::failed;
    fail(code, "{} cannot be opened: {}", path_.string(), std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(Exit::failed, "{}: {}", path_.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(Exit::usage, "{} is not a regular file", path_.string());
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) {
    fail(Exit::failed, "{} ({} bytes) cannot be mapped: {}", path_.string(), std::exchange(size_, 0),
         std::strerror(errno));
  }
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::advise(Access access) const {
  if (!data_) return;
  // Advice only: where the system does not take it, reads are as right as before.
  (void)::madvise(const_cast<std::byte*>(data_), size_, access == Access::sequential ? MADV_SEQUENTIAL : MADV_RANDOM);
}

}  // namespace strata::device
