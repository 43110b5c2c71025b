#include "base/files/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files/output_file.h"

namespace strata {

namespace fs = std::filesystem;

InputFile::InputFile(const fs::path& path, Pipes pipes) {
  Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (opened.get() < 0 || ::fstat(opened.get(), &status) != 0) {
    error = errno;
    return;
  }
  const bool regular = S_ISREG(status.st_mode);
  if (!regular && (S_ISDIR(status.st_mode) || pipes == Pipes::refused || !is_handed_over(path))) return;
  (void)::fcntl(opened.get(), F_SETFL, ::fcntl(opened.get(), F_GETFL) & ~O_NONBLOCK);
  if (regular) bytes = static_cast<std::uint64_t>(status.st_size);
  file = std::move(opened);
}

Descriptor open_input(const fs::path& path, const std::string& named, Pipes pipes) {
  InputFile input(path, pipes);
  if (input.error == ENOENT) refuse_broken_link(path);
  // Opening a socket fails with ENXIO. The next check refuses it as not a regular file.
  if (input.file.get() < 0 && input.error != 0 && input.error != ENXIO)
    fail(Exit::usage, "{} cannot be read: {}", named, std::strerror(input.error));
  if (input.file.get() < 0) fail(Exit::usage, "{} is not a regular file", named);
  return std::move(input.file);
}

std::string read_input(const Descriptor& file, const std::string& named, std::size_t most) {
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  std::string text;
  for (;;) {
    const std::size_t have = text.size();
    text.resize(have + kPiece);
    const ssize_t n = ::read(file.get(), text.data() + have, kPiece);
    const int error = errno;
    text.resize(have + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && error == EINTR) continue;
    if (n < 0) fail(Exit::usage, "{} cannot be read: {}", named, std::strerror(error));
    if (n == 0) return text;
    if (text.size() > most)
      fail(Exit::usage, "{} is larger than {} MiB, so it is another kind of file: name the right one", named,
           std::max<std::size_t>(most >> 20, 1));
  }
}

std::string read_input(const fs::path& path, const std::string& named, std::size_t most, Pipes pipes) {
  std::string text = read_input(open_input(path, named, pipes), named, most);
  refuse_lfs_pointer(text, named);
  return text;
}

void refuse_broken_link(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_symlink(path, ignored) || fs::exists(path, ignored)) return;
  fail(Exit::usage,
       "{} is a link to {}, which does not exist: the download is incomplete, or its cache was cleared; download it "
       "again, or copy a complete one with its links followed (cp -rL)",
       path.string(), fs::read_symlink(path, ignored).string());
}

void refuse_lfs_pointer(std::string_view text, const std::string& named) {
  constexpr std::size_t kMaxBytes = 1024;
  if (text.size() >= kMaxBytes || !text.starts_with("version https://git-lfs.github.com/spec/")) return;
  fail(Exit::usage,
       "{} is a Git LFS pointer, not the file itself: fetch it with git lfs install && git lfs pull in its folder, or "
       "download it again",
       named);
}

}  // namespace strata
