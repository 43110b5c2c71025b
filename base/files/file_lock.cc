#include "base/files/file_lock.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace strata {

int lock_file(const Descriptor& file) {
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

bool lies_at(const Descriptor& file, const std::filesystem::path& path) {
  struct stat open {
  }, there{};
  return ::fstat(file.get(), &open) == 0 && ::lstat(path.c_str(), &there) == 0 && open.st_ino == there.st_ino &&
         open.st_dev == there.st_dev;
}

}  // namespace strata
