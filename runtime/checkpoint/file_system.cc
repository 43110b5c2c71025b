#include "runtime/checkpoint/file_system.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/descriptor.h"
#include "base/files/input_file.h"
#include "base/files/output_file.h"

namespace strata::runtime {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void failed(const fs::path& path, const char* what, int reason) {
  refused_write(fmt::format("{} cannot be {}", path.string(), what), reason);
}

bool aligned(std::uint64_t offset, std::span<const std::byte> bytes) {
  return (offset | bytes.size() | reinterpret_cast<std::uintptr_t>(bytes.data())) % kDirectAlignment == 0;
}

class PosixFile final : public WritableFile {
 public:
  explicit PosixFile(const fs::path& path) : path_(path), file_(create_new_file(path)) {
    if (file_.get() < 0) failed(path, "created", errno);
    // Reopen by descriptor: another file may be at this path by now.
    const std::string opened = fmt::format("/proc/self/fd/{}", file_.get());
    direct_.reset(::open(opened.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
  }

  void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const bool direct = direct_.get() >= 0 && aligned(offset, bytes);
      const ssize_t n =
          ::pwrite(direct ? direct_.get() : file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && direct && errno == EINVAL) {
        direct_.reset();  // the file system has no direct I/O
        continue;
      }
      if (n <= 0)
        refused_write(fmt::format("{} cannot be written at offset {}", path_.string(), offset), n < 0 ? errno : ENOSPC);
      offset += static_cast<std::uint64_t>(n);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  void sync() override {
    if (::fsync(file_.get()) != 0) failed(path_, "written to the disk", errno);
  }

 private:
  fs::path path_;
  Descriptor file_, direct_;  // buffered, and direct I/O if the file system has it
};

class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const fs::path& path) override { return std::make_unique<PosixFile>(path); }

  void make_folder(const fs::path& path) override {
    if (create_new_folder(path)) return;
    const int reason = errno;
    std::error_code ignored;
    // Another rank may have created it. A symbolic link is refused: the checkpoint would be written to a folder that
    // does not belong to this run.
    if (reason != EEXIST || !fs::is_directory(fs::symlink_status(path, ignored))) failed(path, "made a folder", reason);
  }

  void sync_folder(const fs::path& path) override {
    const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0 && errno == EACCES) return ::sync();  // a folder that this user may write but not read
    // Some file systems cannot sync folders, and keep the order of operations on their own.
    if (folder.get() < 0 || (::fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP))
      failed(path, "written to the disk", errno);
  }

  void rename(const fs::path& from, const fs::path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) failed(to, "put in place", errno);
  }

  void remove_file(const fs::path& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) failed(path, "removed", errno);
  }

  void remove_folder(const fs::path& path) override {
    if (::rmdir(path.c_str()) != 0 && errno != ENOENT) failed(path, "removed", errno);
  }
};

}  // namespace

void make_durable_folder(FileSystem& system, const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> missing;
  // Do not normalize the path: after a symbolic link, `..` is not the folder that the text suggests.
  fs::path at = fs::absolute(path / "", error).parent_path();
  if (error) failed(path, "made a folder", error.value());
  for (; !fs::exists(at, error) && at.has_relative_path(); at = at.parent_path())
    if (at.filename() != "." && at.filename() != "..") missing.push_back(at);
  if (!fs::is_directory(at, error)) failed(path, "made a folder", error ? error.value() : ENOTDIR);
  for (; !missing.empty(); missing.pop_back()) {
    const fs::path& folder = missing.back();
    system.make_folder(folder);
    system.sync_folder(folder.parent_path());
  }
}

std::unique_ptr<FileSystem> posix_file_system() {
  return std::make_unique<PosixFileSystem>();
}

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
