#include "runtime/run/reports/report_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files/output_file.h"

namespace strata::runtime {

namespace {

// True if a line is an evaluation's or an answer's, not a step's.
bool is_of_evaluation(std::string_view line, bool table) {
  // A table's last columns belong to evaluations.
  if (table) return !line.ends_with(",,");
  const std::string_view rest = line.substr(std::min(line.find(','), line.size()));
  return rest.starts_with(",\"eval_") || rest.starts_with(",\"prompt\":");
}

// The length in bytes of the heading and the lines that are kept, at the start of a JSONL file or a table.
std::size_t bytes_up_to(const std::filesystem::path& path, const std::string& heading, const KeptLines& kept) {
  std::ifstream file(path);
  std::size_t bytes = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    long long of_line = 0;
    const char* form = heading.empty() ? "{\"step\":%lld," : "%lld,";
    const bool heads = bytes == 0 && line + "\n" == heading;
    if (!heads && (std::sscanf(line.c_str(), form, &of_line) != 1 || of_line > kept.step)) break;
    if (!heads && of_line == kept.step && !kept.evaluation && is_of_evaluation(line, !heading.empty())) break;
    bytes += line.size() + 1;
  }
  return bytes;
}

}  // namespace

ReportFile::ReportFile(const std::filesystem::path& path, const char* name, std::optional<KeptLines> kept,
                       std::string heading)
    : path_(path), kept_(kept), heading_(std::move(heading)) {
  do {
    open();
    lock(name);
    // Another run may have removed its file between opening and locking.
  } while (locked_ && !lies_at(file_, path_));
}

void ReportFile::open() {
  constexpr mode_t kMode = 0644;
  file_ = create_new_file(path_, O_WRONLY, kMode);
  is_new_ = file_.get() >= 0;
  // Opened without blocking, so that the wait for a pipe's reader can time out.
  constexpr int kTries = 100;
  for (int i = 0; file_.get() < 0 && (i == 0 ? errno == EEXIST : errno == ENXIO) && i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    file_ = open_own_file(path_, O_WRONLY, kMode);
  }
  if (file_.get() < 0 && errno == ENOENT) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path_.parent_path(), ignored)) no_folder_for(path_);
    fail(Exit::failed, "{} cannot be written: there is no folder {}: create it, or name another file", path_.string(),
         path_.parent_path().string());
  }
  if (file_.get() < 0 && errno == ENXIO)
    fail(Exit::failed, "{} cannot be written: it is a pipe without a reader", path_.string());
  if (file_.get() < 0) refused_write(fmt::format("{} cannot be written", path_.string()), errno);
}

// The lock belongs to the open file, so it ends with the process in any case.
void ReportFile::lock(const char* name) {
  struct stat status {};
  const bool regular = fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode);
  locked_ = false;
  if (!regular || is_handed_over(path_)) return;
  const int error = lock_file(file_);
  locked_ = error == 0;
  if (error != EWOULDBLOCK) return;  // otherwise the file system has no locks
  file_.reset();
  fail(Exit::usage, "{}: {} is in use: another run writes its reports there; choose another for this run", name,
       path_.string());
}

ReportFile::~ReportFile() {
  if (file_.get() >= 0 && is_new_ && !written_) ::unlink(path_.c_str());
}

ReportFile::ReportFile(ReportFile&& other) noexcept
    : path_(std::move(other.path_)),
      kept_(other.kept_),
      heading_(std::move(other.heading_)),
      file_(std::move(other.file_)),
      is_new_(other.is_new_),
      locked_(other.locked_),
      written_(other.written_) {}

// Removes the earlier content of the file, except the lines that are kept.
void ReportFile::cut() {
  struct stat status {};
  off_t kept = 0;
  if (fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode)) {  // neither a pipe nor a terminal
    if (kept_) kept = static_cast<off_t>(bytes_up_to(path_, heading_, *kept_));
    if (ftruncate(file_.get(), kept) != 0 || lseek(file_.get(), kept, SEEK_SET) != kept)
      refused_write(fmt::format("{} cannot be written", path_.string()), errno);
  }
  if (kept == 0) write(heading_);
}

void ReportFile::write(const std::string& text) {
  if (!std::exchange(written_, true)) cut();
  if (write_all(file_, std::as_bytes(std::span(text))) < text.size())
    refused_write(fmt::format("{} cannot be written", path_.string()), errno);
}

void ReportFile::close() {
  // EINVAL: a pipe or terminal, which cannot be flushed and need not be.
  if (fsync(file_.get()) != 0 && errno != EINVAL && errno != EROFS)
    refused_write(fmt::format("{} cannot be written", path_.string()), errno);
  file_.reset();
}

}  // namespace strata::runtime
