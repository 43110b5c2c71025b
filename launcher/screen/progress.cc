#include "launcher/screen/progress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "launcher/screen/printable.h"

namespace strata::launcher {

namespace {

// Nobody can read faster than this.
constexpr std::chrono::milliseconds kRedraw{50};
// The width assumed for a terminal that cannot be asked, because most are at least this wide. A line that is longer
// than the terminal would leave its first half on the screen after every step.
constexpr std::size_t kNarrow = 80;

// The width of the terminal at `fd`; 0 if `fd` is not a terminal or the width is unknown.
std::size_t columns_at(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

bool shows_live_line(std::FILE* out) {
  const char* asked = std::getenv("STRATA_PROGRESS");
  if (asked == nullptr || *asked == '\0') return isatty(fileno(out)) != 0;
  const std::string_view style = asked;
  if (style != "live" && style != "lines")
    fail(Exit::usage, "STRATA_PROGRESS is \"{}\" in the environment: set it to live or lines, or unset it", style);
  return style == "live";
}

// mpirun puts a pipe between the ranks and the terminal, but ranks on this machine still belong to that terminal. The
// width is read again for each line, because windows can be resized.
std::size_t terminal_columns(std::FILE* out) {
  if (const std::size_t columns = columns_at(fileno(out)); columns > 1) return columns;
  const char* given = std::getenv("COLUMNS");
  if (const int columns = given ? std::atoi(given) : 0; columns > 1) return static_cast<std::size_t>(columns);
  const int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  const std::size_t columns = terminal < 0 ? 0 : columns_at(terminal);
  if (terminal >= 0) close(terminal);
  return columns > 1 ? columns : kNarrow;
}

Progress::Progress(const runtime::Job& job, std::FILE* out) : job_(job), out_(out), live_(shows_live_line(out)) {}

Progress::~Progress() {
  if (open_) std::fputc('\n', out_);
}

void Progress::print_note(std::string_view text) {
  if (std::exchange(open_, false)) std::fputc('\n', out_);
  note(text);
}

void Progress::show(const runtime::StepReport& r) {
  // Leave the first step out of the mean: it touches every page for the first time, so its time does not represent
  // later steps.
  smooth_ms_ = ++shown_ <= 2 ? r.step_ms : 0.9 * smooth_ms_ + 0.1 * r.step_ms;
  const std::int64_t steps = *job_.recipe.training.max_steps;
  std::vector<std::string> fields = {
      fmt::format("step {}/{}", r.step, steps),
      "loss " + value_text(r.loss, 4),
      fmt::format("lr {:.2e}", r.learning_rate),
      "norm " + value_text(r.grad_norm, 3),
      tokens_rate_text(r.tokens_per_s()),
      fmt::format("epoch {:.2f}", r.epoch),
      fmt::format("{} left", duration_text(static_cast<double>(steps - r.step) * smooth_ms_ / 1e3))};
  if (r.skipped) fields.push_back(fmt::format("skipped (loss scale {:g})", r.loss_scale));
  if (job_.plan.io_bytes.of(runtime::Tier::nvme))
    fields.push_back(fmt::format("disk {:.2f} GB/s", static_cast<double>(r.disk_bytes) / r.step_ms * 1e-6));
  const bool last = r.stop || r.step >= steps;
  if (live_) return show_live(std::move(fields), last);
  if (shown_ > 1 && !last && !r.skipped && r.step % job_.recipe.report.every != 0) return;
  std::fprintf(out_, "%s\n", fmt::format("{}", fmt::join(fields, "  ")).c_str());
  std::fflush(out_);
}

void Progress::show_live(std::vector<std::string> fields, bool last) {
  const auto now = std::chrono::steady_clock::now();
  if (open_ && !last && now - drawn_ < kRedraw) return;
  drawn_ = now;
  const std::size_t columns = terminal_columns(out_);
  std::string line = fmt::format("{}", fmt::join(fields, "  "));
  // If the terminal is too narrow, leave out the norm, then the epoch, then the learning rate.
  for (const std::size_t field : {3, 4, 2}) {
    if (line.size() < columns) break;
    fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(field));
    line = fmt::format("{}", fmt::join(fields, "  "));
  }
  if (line.size() >= columns) line.resize(columns - 1);
  std::fprintf(out_, "\r\033[K%s", line.c_str());
  std::fflush(out_);
  open_ = true;
}

namespace {

constexpr std::chrono::milliseconds kFirst{2000}, kActivityRedraw{200};
constexpr std::chrono::seconds kLine{10};

}  // namespace

Activity::Activity(std::string what, Unit unit, bool prints, std::FILE* out)
    : what_(std::move(what)), unit_(unit), prints_(prints), live_(isatty(fileno(out)) == 1), out_(out) {
  next_ = start_ + kFirst;
}

Activity::~Activity() {
  clear();
}

void Activity::show(std::uint64_t done, std::uint64_t all, const std::string& more) {
  if (!prints_) return;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (live_ ? Clock::duration(kActivityRedraw) : Clock::duration(kLine));
  const std::string line = text(done, all, more, std::chrono::duration<double>(now - start_).count());
  // If stderr cannot be written, only this line is lost.
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
