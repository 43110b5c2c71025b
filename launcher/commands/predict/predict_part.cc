#include "launcher/commands/predict/predict_part.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/error.h"

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
    fail(Exit::usage, "{} is in the way, and no prediction made it: move it, or give another --out", path.string());
  };
  if (fs::symlink_status(part, ignored).type() != fs::file_type::not_found) {
    std::string begin(std::strlen(PredictPart::kBegins), '\0');
    if (fs::is_regular_file(part, ignored) && fs::is_empty(part, ignored)) return;  // killed while it made it
    std::ifstream in(part, std::ios::binary);
    in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
    if (!in || begin != PredictPart::kBegins || !fs::is_regular_file(part, ignored)) refuse(part);
    return;
  }
  for (const fs::path& other : others)
    if (fs::symlink_status(other, ignored).type() != fs::file_type::not_found) refuse(other);
}

void claim_names(const fs::path& part) {
  if (std::ifstream(part)) return;
  std::ofstream out(part, std::ios::binary);
  out << PredictPart::kBegins << "\n";
  out.flush();
  if (!out) fail(Exit::failed, "{} cannot be written", part.string());
}

void give_up_names(const fs::path& part) {
  std::error_code ignored;
  if (fs::file_size(part, ignored) == std::strlen(PredictPart::kBegins) + 1) fs::remove(part, ignored);
}

fs::path PredictPart::path_of(const fs::path& out) {
  fs::path path = out;
  path += ".part";
  return path;
}

PredictPart::PredictPart(std::filesystem::path path, std::string of_what, std::size_t classes)
    : path_(std::move(path)), of_what_(std::move(of_what) + "\n"), classes_(classes) {
  STRATA_CHECK(of_what_.starts_with(kBegins));
}

std::uint64_t PredictPart::read(std::map<std::int32_t, std::vector<float>>& rows) {
  std::ifstream in(path_, std::ios::binary);
  std::string all{std::istreambuf_iterator<char>(in), {}};
  std::uint64_t done = 0;
  std::size_t kept = 0;
  if (all.starts_with(of_what_)) {
    kept = of_what_.size();
    for (std::uint64_t head[2]; kept + sizeof head <= all.size();) {
      std::memcpy(head, all.data() + kept, sizeof head);
      const std::size_t of_row = sizeof(std::int32_t) + classes_ * sizeof(float);
      if (head[1] > (all.size() - kept - sizeof head) / of_row) break;
      const char* at = all.data() + kept + sizeof head;
      for (std::uint64_t i = 0; i < head[1]; ++i, at += of_row) {
        std::int32_t row = 0;
        std::memcpy(&row, at, sizeof row);
        auto& scores = rows[row];
        scores.resize(classes_);
        std::memcpy(scores.data(), at + sizeof row, classes_ * sizeof(float));
      }
      kept += sizeof head + head[1] * of_row;
      done = head[0];
    }
  }
  all.resize(kept);
  if (kept == 0) all = of_what_;
  out_.open(path_, std::ios::binary | std::ios::trunc);
  out_ << all;
  out_.flush();
  if (!out_) fail(Exit::failed, "{} cannot be written", path_.string());
  return done;
}

void PredictPart::add(std::uint64_t done, std::span<const std::int32_t> rows, std::span<const float> scores) {
  const std::uint64_t head[2] = {done, rows.size()};
  out_.write(reinterpret_cast<const char*>(head), sizeof head);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out_.write(reinterpret_cast<const char*>(&rows[i]), sizeof rows[i]);
    out_.write(reinterpret_cast<const char*>(scores.data() + i * classes_),
               static_cast<std::streamsize>(classes_ * sizeof(float)));
  }
  out_.flush();
  if (!out_) fail(Exit::failed, "{} cannot be written", path_.string());
}

void PredictPart::remove() {
  out_.close();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace strata::launcher
