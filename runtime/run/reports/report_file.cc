#include "runtime/run/reports/report_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files/refused_write.h"

namespace strata::runtime {

namespace {

// Bytes of the lines at the start of a report that are the heading or begin with a step of at most `step`: JSON's, or
// those of a table.
std::size_t bytes_up_to(const std::filesystem::path& path, const std::string& heading, std::int64_t step) {
  std::ifstream file(path);
  std::size_t bytes = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    long long of_line = 0;
    const char* form = heading.empty() ? "{\"step\":%lld," : "%lld,";
    const bool heads = bytes == 0 && line + "\n" == heading;
    if (!heads && (std::sscanf(line.c_str(), form, &of_line) != 1 || of_line > step)) break;
    bytes += line.size() + 1;
  }
  return bytes;
}

}  // namespace

ReportFile::ReportFile(const std::filesystem::path& path, std::int64_t kept_step, std::string heading)
    : path_(path), kept_step_(kept_step), heading_(std::move(heading)) {
  file_.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  is_new_ = file_.get() >= 0;
  // Not blocking: a pipe's reader is waited for, but not for ever.
  constexpr int kTries = 100;
  for (int i = 0; file_.get() < 0 && (i == 0 ? errno == EEXIST : errno == ENXIO) && i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    file_.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
  }
  if (file_.get() < 0 && errno == ENOENT)
    fail(Exit::failed, "{} cannot be written: there is no folder {}: make it, or name another file", path.string(),
         path.parent_path().string());
  if (file_.get() < 0)
    fail(Exit::failed, "{} cannot be written: {}", path.string(),
         errno == ENXIO ? "it is a pipe that nobody reads" : std::strerror(errno));
  (void)fcntl(file_.get(), F_SETFL, fcntl(file_.get(), F_GETFL) & ~O_NONBLOCK);
}

ReportFile::~ReportFile() {
  if (file_.get() >= 0 && is_new_ && !written_) ::unlink(path_.c_str());
}

ReportFile::ReportFile(ReportFile&& other) noexcept
    : path_(std::move(other.path_)),
      kept_step_(other.kept_step_),
      heading_(std::move(other.heading_)),
      file_(std::move(other.file_)),
      is_new_(other.is_new_),
      written_(other.written_) {}

// What the file held before, but for the steps that are kept.
void ReportFile::cut() {
  struct stat status {};
  off_t kept = 0;
  if (fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode)) {  // no pipe, no terminal
    if (kept_step_ > 0) kept = static_cast<off_t>(bytes_up_to(path_, heading_, kept_step_));
    if (ftruncate(file_.get(), kept) != 0 || lseek(file_.get(), kept, SEEK_SET) != kept)
      refused_write(fmt::format("{} cannot be written", path_.string()), errno);
  }
  if (kept == 0) write_all(heading_);
}

void ReportFile::write(const std::string& text) {
  if (!std::exchange(written_, true)) cut();
  write_all(text);
}

void ReportFile::write_all(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file_.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refused_write(fmt::format("{} cannot be written", path_.string()), errno);
    done += static_cast<std::size_t>(n);
  }
}

void ReportFile::close() {
  // EINVAL: a pipe or terminal, which cannot be flushed and need not be.
  if (fsync(file_.get()) != 0 && errno != EINVAL && errno != EROFS)
    refused_write(fmt::format("{} cannot be written", path_.string()), errno);
  file_.reset();
}

}  // namespace strata::runtime
