#include "runtime/checkpoint/readable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files/input_file.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

const char* advice(int reason) {
  switch (reason) {
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EACCES:
    case EPERM:
      return "give this user read permission";
    case ENOMEM:
      return "free some memory";
    default:
      return "check the drive and the file system, or name another checkpoint";
  }
}

}  // namespace

void unreadable(const fs::path& path, const char* what, int reason) {
  fail(Exit::failed, "{} cannot be {}: {}; {}", path.string(), what, std::strerror(reason), advice(reason));
}

fs::file_type type_at(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (error && type != fs::file_type::not_found) unreadable(path, "looked up", error.value());
  return type;
}

ReadableFile::ReadableFile(fs::path path) : path_(std::move(path)) {
  InputFile input(path_);
  if (input.error == ENOENT || input.error == ENOTDIR) fail(Exit::corrupt, "{} is missing", path_.string());
  if (input.error != 0 && input.error != ENXIO) unreadable(path_, "opened", input.error);  // ENXIO: a socket
  if (input.file.get() < 0) fail(Exit::corrupt, "{} is not a regular file", path_.string());
  file_ = std::move(input.file);
  bytes_ = input.bytes;
}

void ReadableFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) unreadable(path_, "read", errno);
    if (n == 0) fail(Exit::corrupt, "{} is truncated: it ends at offset {}", path_.string(), offset);
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

void ReadableFile::prefetch(std::uint64_t offset, std::uint64_t bytes) const {
  // Advice only: reads are correct without it.
  (void)::posix_fadvise(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

}  // namespace strata::runtime
