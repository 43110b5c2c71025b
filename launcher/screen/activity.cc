#include "launcher/screen/activity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/quantity.h"

namespace strata::launcher {
namespace {

constexpr std::chrono::milliseconds kFirst{2000}, kActivityRedraw{200};
constexpr std::chrono::seconds kLine{10};

}  // namespace

Activity::Activity(std::string what, Unit unit, bool speaks, std::FILE* out)
    : what_(std::move(what)), unit_(unit), speaks_(speaks), live_(isatty(fileno(out)) == 1), out_(out) {
  next_ = start_ + kFirst;
}

Activity::~Activity() {
  clear();
}

void Activity::show(std::uint64_t done, std::uint64_t all, const std::string& more) {
  if (!speaks_) return;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (live_ ? Clock::duration(kActivityRedraw) : Clock::duration(kLine));
  const std::string line = text(done, all, more, std::chrono::duration<double>(now - start_).count());
  // If stderr cannot be written, this line is lost and nothing else.
  std::fprintf(out_, live_ ? "\r\033[K%s" : "strata: %s\n", line.c_str());
  std::fflush(out_);
  open_ = live_;
}

void Activity::clear() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(open_, false)) return;
  std::fputs("\r\033[K", out_);
  std::fflush(out_);
}

std::string Activity::text(std::uint64_t done, std::uint64_t all, const std::string& more, double seconds) const {
  const auto amount = [&](std::uint64_t n) { return unit_ == Unit::bytes ? bytes_text(n) : grouped(n); };
  std::string line = fmt::format("{}: {}", what_, amount(done));
  if (all > 0) line += fmt::format(" of {}", amount(all));
  if (!more.empty()) line += ", " + more;
  if (done > 0 && done <= all)
    line +=
        fmt::format(", {} left", duration_text(seconds / static_cast<double>(done) * static_cast<double>(all - done)));
  return line;
}

}  // namespace strata::launcher
