#include "offload/swap_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "base/error.h"

namespace strata::offload {

std::string error_text(int error) {
  return std::generic_category().message(error);
}

namespace {

// Bytes that this user may still use; nullopt if the file system does not count them (ramfs).
std::optional<std::uint64_t> free_bytes(int file) {
  struct statvfs status {};
  if (::fstatvfs(file, &status) != 0 || status.f_blocks == 0) return std::nullopt;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

}  // namespace

SwapFile::SwapFile(std::filesystem::path folder, std::uint64_t bytes, int rank)
    : folder_(std::move(folder)), bytes_(bytes), rank_(rank) {
  open();
  preallocate();
  struct statfs status {};
  if (::fstatfs(file_.get(), &status) == 0 && status.f_type == TMPFS_MAGIC)
    notes_.push_back("this folder is on tmpfs, which is memory and not a drive");
}

std::string SwapFile::name() const {
  return fmt::format("the swap file of rank {} in {}", rank_, folder_.string());
}

void SwapFile::open() {
  struct stat status {};
  if (::stat(folder_.c_str(), &status) != 0) {
    const int error = errno;
    if (error == ENOENT)
      fail(Exit::usage, "the offload folder {} does not exist: create it, or name another", folder_.string());
    fail(Exit::usage, "the offload folder {} cannot be used: {}", folder_.string(), error_text(error));
  }
  if (!S_ISDIR(status.st_mode))
    fail(Exit::usage, "the offload folder {} is not a folder: name one on the drive", folder_.string());
  file_ = Descriptor(::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (file_.get() < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT)) {
    // On a file system without unnamed files (O_TMPFILE), the file has a unique name for a moment.
    std::string name = (folder_ / ".strata-swap-XXXXXX").string();
    file_ = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
    if (file_.get() >= 0 && ::unlink(name.c_str()) != 0)
      fail(Exit::failed, "{} cannot be unlinked: {}", name, error_text(errno));
  }
  if (file_.get() >= 0) return;
  const int error = errno;
  if (error == EACCES || error == EPERM || error == EROFS || error == ENOENT)
    fail(Exit::usage, "the offload folder {} cannot be written: {}", folder_.string(), error_text(error));
  fail(error == ENOSPC || error == EDQUOT ? Exit::does_not_fit : Exit::failed, "{} cannot be created: {}", name(),
       error_text(error));
}

void SwapFile::too_small(std::uint64_t available) const {
  fail(Exit::does_not_fit, "{} needs {} bytes, and {} are free there: free some, or name another folder", name(),
       bytes_, available);
}

void SwapFile::preallocate() {
  // Check first, because a file system may allocate all its space before it finds that it has too little.
  const auto available = free_bytes(file_.get());
  if (available && *available < bytes_) too_small(*available);
  const auto size = static_cast<off_t>(bytes_);
  int error = 0;
  do {
    error = ::fallocate(file_.get(), 0, 0, size) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0) return;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    (void)::ftruncate(file_.get(), 0);
    if (error == ENOSPC) too_small(free_bytes(file_.get()).value_or(0));
    fail(Exit::does_not_fit, "{} needs {} bytes: {}", name(), bytes_, error_text(error));
  }
  if (error != EOPNOTSUPP && error != ENOSYS)
    fail(Exit::failed, "{}: {} bytes cannot be reserved: {}", name(), bytes_, error_text(error));
  if (::ftruncate(file_.get(), size) != 0)
    fail(Exit::failed, "{} cannot be made {} bytes long: {}", name(), bytes_, error_text(errno));
  notes_.push_back(fmt::format("its bytes could not be reserved ({} has no fallocate), so the folder may fill up later",
                               file_system_of(folder_)));
}

int SwapFile::set_direct(bool direct) {
  const int flags = ::fcntl(file_.get(), F_GETFL);
  if (flags < 0) return errno;
  return ::fcntl(file_.get(), F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0 ? 0 : errno;
}

std::string file_system_of(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::string wanted = std::filesystem::canonical(folder, ignored).string();
  std::ifstream mounts("/proc/self/mounts");
  std::string best, best_type;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string device, point, type;
    if (!(fields >> device >> point >> type) || point.size() < best.size() || !wanted.starts_with(point)) continue;
    if (point != "/" && wanted.size() > point.size() && wanted[point.size()] != '/') continue;
    best = point;
    best_type = type;
  }
  return best_type;
}

Stripes::Stripes(std::uint64_t offset, std::uint64_t size, std::size_t drive, std::size_t drives)
    : begin_(offset), end_(offset + size), at_(offset), drives_(drives) {
  const std::uint64_t first = offset / kBlock, ahead = (drive + drives - first % drives) % drives;
  if (ahead != 0) at_ = (first + ahead) * kBlock;
}

BlockRange Stripes::next() {
  const std::uint64_t block = at_ / kBlock, block_end = (block + 1) * kBlock;
  const BlockRange range{block / drives_ * kBlock + at_ % kBlock, at_ - begin_,
                         static_cast<std::uint32_t>(std::min(end_, block_end) - at_)};
  at_ = (block + drives_) * kBlock;
  return range;
}

std::uint64_t file_bytes(std::uint64_t bytes, std::size_t drive, std::size_t drives) {
  const std::uint64_t blocks = (bytes + kBlock - 1) / kBlock;
  return (blocks / drives + (drive < blocks % drives ? 1 : 0)) * kBlock;
}

}  // namespace strata::offload
