#include "base/files/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files/input_file.h"

namespace strata {

namespace {

// The pages that overlap `part`: address and length.
std::pair<void*, std::size_t> pages_around(std::span<const std::byte> part) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(part.data()) % page;
  return {const_cast<std::byte*>(part.data()) - before, part.empty() ? 0 : before + part.size()};
}

[[noreturn]] void fail_to_open(const std::filesystem::path& path, int error) {
  refuse_broken_link(path);
  fail(error == ENOENT || error == ENOTDIR ? Exit::usage : Exit::failed, "{} cannot be opened: {}", path.string(),
       std::strerror(error));
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  InputFile input(path_);
  if (input.error != 0 && input.error != ENXIO) fail_to_open(path_, input.error);  // ENXIO: a socket
  if (input.file.get() < 0) fail(Exit::usage, "{} is not a regular file", path_.string());
  file_ = std::move(input.file);
  size_ = static_cast<std::size_t>(input.bytes);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file_.get(), 0);
  if (data == MAP_FAILED) {
    fail(Exit::failed, "{} ({} bytes) cannot be mapped: {}", path_.string(), std::exchange(size_, 0),
         std::strerror(errno));
  }
  data_ = static_cast<const std::byte*>(data);
  try {
    refuse_lfs_pointer({reinterpret_cast<const char*>(data_), size_}, path_.string());
  } catch (...) {
    ::munmap(data, size_);  // the destructor does not run if the constructor throws
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::require_untruncated() const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail(Exit::failed, "{}: {}", path_.string(), std::strerror(errno));
  if (static_cast<std::size_t>(status.st_size) < size_)
    fail(Exit::corrupt, "{}, offset {}: expected {} bytes, found {}: the file was truncated while it was read",
         path_.string(), status.st_size, size_, status.st_size);
}

void MappedFile::will_need(std::span<const std::byte> part) {
  const auto [first, bytes] = pages_around(part);
  if (bytes) (void)::madvise(first, bytes, MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> part) {
  const auto [first, bytes] = pages_around(part);
  if (bytes) (void)::madvise(first, bytes, MADV_DONTNEED);  // the mapping is read-only, so nothing is lost
}

}  // namespace strata
