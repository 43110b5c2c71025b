#include "base/files/output_file.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/random_name.h"

namespace strata {

namespace fs = std::filesystem;

namespace {

// Returns advice about a lack of space, or nullptr for any other error.
const char* advice(int error) {
  switch (error) {
    case ENOSPC:
      return "free some space there, or choose a folder on a file system that has more";
    case EDQUOT:
      return "free some of your quota there, or choose another folder";
    case EFBIG:
      return "raise the file size limit (ulimit -f), or choose a file system that allows longer files";
    default:
      return nullptr;
  }
}

}  // namespace

Descriptor create_new_file(const fs::path& path, int access, mode_t mode) {
  return Descriptor(::open(path.c_str(), access | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
}

// Opening a pipe without a reader fails with ENXIO instead of blocking.
Descriptor open_own_file(const fs::path& path, int access, mode_t mode) {
  const int follow = is_handed_over(path) ? 0 : O_NOFOLLOW;
  Descriptor file(::open(path.c_str(), access | O_CREAT | follow | O_CLOEXEC | O_NONBLOCK, mode));
  if (file.get() < 0 && errno == ELOOP) {
    // A link to something that stores no bytes, such as a terminal or /dev/null, is followed: nothing can be destroyed
    // through it.
    file.reset(::open(path.c_str(), access | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    const bool holds_none =
        file.get() >= 0 && ::fstat(file.get(), &status) == 0 && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode));
    if (!holds_none) file.reset();
    if (!holds_none) errno = ELOOP;
  }
  if (file.get() >= 0) (void)::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
  return file;
}

bool create_new_folder(const fs::path& path) {
  return ::mkdir(path.c_str(), 0777) == 0;
}

fs::path name_next_to(const fs::path& path) {
  constexpr std::size_t kDigits = 16;  // file names have a length limit
  fs::path out = path;
  return out += ".tmp." + random_name().substr(0, kDigits);
}

bool is_handed_over(const fs::path& path) {
  constexpr std::array<std::string_view, 5> kNames = {"/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty",
                                                      "/dev/null"};
  const std::string name = path.lexically_normal().string();
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    const std::string_view number = std::string_view(name).substr(std::min(name.size(), folder.size()));
    if (name.starts_with(folder) && !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos)
      return true;
  }
  return false;
}

int lock_file(const Descriptor& file) {
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

bool lies_at(const Descriptor& file, const fs::path& path) {
  struct stat open {
  }, there{};
  return ::fstat(file.get(), &open) == 0 && ::lstat(path.c_str(), &there) == 0 && open.st_ino == there.st_ino &&
         open.st_dev == there.st_dev;
}

std::size_t write_all(const Descriptor& file, std::span<const std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void refused_write(const std::string& what, int error) {
  if (const char* to_do = advice(error))
    fail(Exit::does_not_fit, "{}: {} (errno {}): {}", what, std::strerror(error), error, to_do);
  if (error == ELOOP)
    fail(Exit::usage, "{}: it is a symbolic link, and files are not written through links: name the file itself", what);
  const char* may_not = error == EROFS                      ? ": choose a folder in another file system"
                        : error == EACCES || error == EPERM ? ": give this user the right to write there, or "
                                                              "choose another folder"
                                                            : "";
  fail(Exit::failed, "{}: {} (errno {}){}", what, std::strerror(error), error, may_not);
}

void no_folder_for(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code ignored;
  if (fs::is_directory(folder, ignored))
    fail(Exit::usage, "{}: no files can be created in {}: give a name in another folder", path.string(),
         folder.string());
  fail(Exit::usage, "{}: there is no folder {}: create it first, or give another name", path.string(), folder.string());
}

}  // namespace strata
