#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/files/output_file.h"
#include "launcher/commands/predict/predict.h"

namespace strata::launcher {

namespace fs = std::filesystem;

std::optional<std::size_t> row_not_finite(std::span<const float> scores, std::size_t classes) {
  const auto found = std::ranges::find_if(scores, [](float score) { return !std::isfinite(score); });
  if (found == scores.end()) return std::nullopt;
  return static_cast<std::size_t>(found - scores.begin()) / classes;
}

void require_free_names(const fs::path& part, const std::vector<fs::path>& others) {
  std::error_code ignored;
  const auto refuse = [](const fs::path& path) {
    fail(Exit::usage, "{} exists, but strata predict did not write it: move it, or give another --out", path.string());
  };
  if (fs::symlink_status(part, ignored).type() != fs::file_type::not_found) {
    std::string begin(std::strlen(PredictPart::kBegins), '\0');
    if (fs::is_regular_file(part, ignored) && fs::is_empty(part, ignored)) return;  // left by a killed prediction
    const InputFile in(part);
    const ssize_t n = in.file.get() < 0 ? -1 : ::read(in.file.get(), begin.data(), begin.size());
    if (n != static_cast<ssize_t>(begin.size()) || begin != PredictPart::kBegins) refuse(part);
    return;
  }
  for (const fs::path& other : others)
    if (fs::symlink_status(other, ignored).type() != fs::file_type::not_found) refuse(other);
}

void reserve_names(const fs::path& part) {
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(part, ignored))) return;
  const Descriptor file = create_new_file(part);
  const std::string text = std::string(PredictPart::kBegins) + "\n";
  if (file.get() < 0 || write_all(file, std::as_bytes(std::span(text))) < text.size())
    refused_write(fmt::format("{} cannot be written", part.string()), errno);
}

void release_names(const fs::path& part) {
  std::error_code ignored;
  if (fs::file_size(part, ignored) == std::strlen(PredictPart::kBegins) + 1) fs::remove(part, ignored);
}

fs::path PredictPart::path_of(const fs::path& out) {
  fs::path path = out;
  path += ".part";
  return path;
}

PredictPart::PredictPart(std::filesystem::path path, std::string header, std::size_t classes,
                         std::span<runtime::RowLocation> places)
    : path_(std::move(path)), header_(std::move(header) + "\n"), classes_(classes), places_(places) {
  STRATA_CHECK(header_.starts_with(kBegins));
}

bool PredictPart::read(std::uint64_t at, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Exit::failed, "{} cannot be read: {} (errno {})", path_.string(), std::strerror(errno), errno);
    if (n == 0) return false;
    out = out.subspan(static_cast<std::size_t>(n));
    at += static_cast<std::uint64_t>(n);
  }
  return true;
}

void PredictPart::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(end_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refused_write(fmt::format("{} cannot be written", path_.string()), n < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    end_ += static_cast<std::uint64_t>(n);
  }
}

std::uint64_t PredictPart::read_round(std::uint64_t& at, std::uint64_t size) {
  std::uint64_t head[2];
  if (!read(at, std::as_writable_bytes(std::span(head)))) return 0;
  const std::uint64_t left = size - at - sizeof head;
  if (head[1] > left / row_bytes() || head[1] > places_.size() - rows_) return 0;
  round_.resize(head[1] * row_bytes());
  if (!read(at + sizeof head, round_)) return 0;
  at += sizeof head;
  for (std::uint64_t i = 0; i < head[1]; ++i, at += row_bytes()) {
    std::int32_t row = 0;
    std::memcpy(&row, round_.data() + i * row_bytes(), sizeof row);
    places_[rows_++] = {row, at + sizeof row};
  }
  return head[0];
}

std::uint64_t PredictPart::open() {
  file_ = open_own_file(path_, O_RDWR);
  struct stat status {};
  if (file_.get() < 0 || fstat(file_.get(), &status) != 0)
    refused_write(fmt::format("{} cannot be written", path_.string()), errno);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::string begin(header_.size(), '\0');
  std::uint64_t done = 0;
  if (read(0, std::as_writable_bytes(std::span(begin))) && begin == header_) {
    end_ = header_.size();
    while (const std::uint64_t after = read_round(end_, size)) done = after;
  }
  if (ftruncate(file_.get(), static_cast<off_t>(end_)) != 0)
    refused_write(fmt::format("{} cannot be written", path_.string()), errno);
  if (end_ == 0) write(std::as_bytes(std::span(header_)));
  return done;
}

void PredictPart::add(std::uint64_t done, std::span<const std::int32_t> rows, std::span<const float> scores) {
  const std::uint64_t head[2] = {done, rows.size()};
  round_.resize(sizeof head + rows.size() * row_bytes());
  std::memcpy(round_.data(), head, sizeof head);
  STRATA_CHECK_LE(rows_ + rows.size(), places_.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t at = sizeof head + i * row_bytes();
    std::memcpy(round_.data() + at, &rows[i], sizeof rows[i]);
    std::memcpy(round_.data() + at + sizeof rows[i], scores.data() + i * classes_, classes_ * sizeof(float));
    places_[rows_++] = {rows[i], end_ + at + sizeof rows[i]};
  }
  write(round_);
}

void PredictPart::each_row(const std::function<void(std::int64_t row, std::span<const float> scores)>& f) {
  const std::span<runtime::RowLocation> places = places_.first(rows_);
  std::ranges::sort(places, {}, &runtime::RowLocation::row);
  std::vector<float> scores(classes_);
  for (const runtime::RowLocation& place : places) {
    if (!read(place.offset, std::as_writable_bytes(std::span(scores))))
      fail(Exit::failed, "{} was truncated while it was read: run the same command again", path_.string());
    f(place.row, scores);
  }
}

void PredictPart::remove() {
  file_.reset();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace strata::launcher
