#include "launcher/launch/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/output_file.h"
#include "base/json/json_writer.h"
#include "launcher/screen/printable.h"

namespace strata::launcher {

LogFile::LogFile(std::filesystem::path path, Refused refused, Open when) : path_(std::move(path)), refused_(refused) {
  if (when == Open::later) return;
  if (const int error = open(); error != 0)
    fail(Exit::usage, "--logs: {} cannot be written: {}", path_.string(), std::strerror(error));
}

int LogFile::open() {
  file_ = open_own_file(path_, O_WRONLY | O_APPEND);
  return file_.get() < 0 ? errno : 0;
}

int LogFile::open_if_removed() {
  struct stat now {};
  if (file_.get() >= 0 && (::fstat(file_.get(), &now) != 0 || now.st_nlink > 0)) return 0;
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  cut_ = false;
  return open();
}

int LogFile::write(std::string_view line) {
  const int error_of_opening = open_if_removed();
  if (refused_ == Refused::keep) {
    rest_ += line;
    if (error_of_opening != 0) return error_of_opening;
    rest_.erase(0, write_all(file_, std::as_bytes(std::span(rest_))));
    return rest_.empty() ? 0 : errno;
  }
  if (error_of_opening != 0) {
    ++lost_;
    return error_of_opening;
  }
  std::string text;
  if (lost_ > 0)
    text = fmt::format("{}strata: missing here, because the disk was full or failed: {}\n", cut_ ? "\n" : "",
                       lost_ == 1 ? "a line" : fmt::format("{} lines", lost_));
  const std::size_t note_bytes = text.size();
  text += line;
  const std::size_t taken = write_all(file_, std::as_bytes(std::span(text)));
  const int error = taken < text.size() ? errno : 0;
  if (taken > 0) cut_ = text[taken - 1] != '\n';
  if (taken >= note_bytes) lost_ = 0;
  if (error != 0) ++lost_;
  return error;
}

void LogFailure::set(int error) {
  int none = 0;
  (void)error_.compare_exchange_strong(none, error);
}

std::string LogFailure::take(const std::filesystem::path& folder) {
  const int error = error_.load();
  if (error == 0 || reported_.exchange(true)) return {};
  return fmt::format(
      "--logs: {} cannot be written ({}): the run continues, and the logs will say how many lines are missing once "
      "there is space",
      folder.string(), std::strerror(error));
}

Events::Events(const std::optional<std::filesystem::path>& folder) {
  if (!folder) return;
  folder_ = *folder;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  file_.emplace(folder_ / kEventsFile, LogFile::Refused::keep);
}

void Events::write(const Event& event) {
  if (!file_) return;
  JsonObject line;
  line.add("time", Decimals{seconds_since_epoch(), 3})
      .add("event", event.kind)
      .add("nodes", JsonArray().add_all(event.nodes));
  if (event.ranks) line.add("ranks", *event.ranks);
  if (event.exit) line.add("exit", *event.exit);
  if (!event.cause.empty()) line.add("cause", event.cause);
  failure_.set(file_->write(line.text() + "\n"));
  if (const std::string text = failure_.take(folder_); !text.empty()) note(text);
}

}  // namespace strata::launcher
