#include "runtime/checkpoint/hold.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/checkpoint/manifest.h"

namespace strata::runtime {

namespace fs = std::filesystem;

std::optional<CheckpointHold> CheckpointHold::to_read(const fs::path& checkpoint) {
  const fs::path manifest = checkpoint / kManifestName;
  CheckpointHold hold(::open(manifest.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (hold.manifest_.get() < 0) return hold;
  while (::flock(hold.manifest_.get(), LOCK_SH) != 0 && errno == EINTR) {
  }
  struct stat held {
  }, there{};
  const bool same = ::fstat(hold.manifest_.get(), &held) == 0 && ::stat(manifest.c_str(), &there) == 0 &&
                    held.st_ino == there.st_ino && held.st_dev == there.st_dev;
  if (!same) return std::nullopt;
  return hold;
}

// NFS grants an exclusive lock only on a file that is open for writing.
std::optional<CheckpointHold> CheckpointHold::to_remove(const fs::path& checkpoint) {
  CheckpointHold hold(::open((checkpoint / kManifestName).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (hold.manifest_.get() >= 0 && ::flock(hold.manifest_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return std::nullopt;
  return hold;
}

}  // namespace strata::runtime
