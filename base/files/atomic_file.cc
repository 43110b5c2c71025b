#include "base/files/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/files/output_file.h"

namespace strata {

namespace fs = std::filesystem;

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    fail(Exit::usage, "{} exists and is not a regular file: give another name", path_.string());
  }
  temporary_ = name_next_to(path_);
  // If the file system supports files without a name, a killed process leaves nothing behind.
  file_.reset(::open(folder().c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
  named_ = file_.get() < 0;
  if (named_) file_ = create_new_file(temporary_);
  if (file_.get() >= 0) return;
  if (errno == ENOENT || errno == ENOTDIR) no_folder_for(path_);
  failed("created");
}

fs::path AtomicFile::folder() const {
  return path_.has_parent_path() ? path_.parent_path() : ".";
}

AtomicFile::~AtomicFile() {
  if (file_.get() >= 0 && named_) ::unlink(temporary_.c_str());
}

void AtomicFile::failed(const char* what) const {
  refused_write(fmt::format("{} cannot be {}", path_.string(), what), errno);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (write_all(file_, bytes) < bytes.size()) failed("written");
}

void AtomicFile::commit() {
  if (::fsync(file_.get()) != 0) failed("written to the disk");
  if (!named_) {
    const std::string nameless = "/proc/self/fd/" + std::to_string(file_.get());
    if (::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      failed("put in place");
    named_ = true;
  }
  if (::close(file_.release()) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    errno = reason;
    failed("put in place");
  }
  const Descriptor in(::open(folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (in.get() < 0) failed("put in place durably");
  // Some file systems cannot sync folders. The file itself is already on the disk.
  if (::fsync(in.get()) != 0 && errno != EINVAL && errno != ENOTSUP) failed("put in place durably");
}

}  // namespace strata
