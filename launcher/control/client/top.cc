#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"
#include "launcher/control/client/client.h"
#include "launcher/median.h"
#include "launcher/screen/printable.h"

namespace strata::launcher::control {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxSteps = 4096;  // points of the loss curve
constexpr int kCurveRows = 8;

// The number of columns. Every character that is printed here is one column wide.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string fit(const std::string& text, std::size_t columns) {
  std::size_t at = 0, shown = 0;
  while (at < text.size()) {
    std::size_t next = at + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xc0) == 0x80) ++next;
    if (++shown > columns) return text.substr(0, at);
    at = next;
  }
  return text;
}

std::string bar(double part, std::size_t columns, bool unicode) {
  const auto eighths =
      static_cast<std::size_t>(std::lround(std::clamp(part, 0.0, 1.0) * 8 * static_cast<double>(columns)));
  std::string out;
  if (!unicode) {
    out.assign((eighths + 4) / 8, '#');
    return out + std::string(columns - out.size(), ' ');
  }
  static constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  for (std::size_t i = 0; i < eighths / 8; ++i) out += "█";
  out += kEighths[eighths % 8];
  return out + std::string(columns - width_of(out), ' ');
}

// Draws points in a grid of columns by kCurveRows characters, each of which has 2 by 4 Braille dots, or one star.
std::vector<std::string> curve(const std::vector<pb::Step>& steps, std::size_t columns, bool unicode) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const pb::Step& s : steps)
    if (std::isfinite(s.loss())) {
      least = std::min(least, s.loss());
      most = std::max(most, s.loss());
    }
  if (!(least <= most)) return {};
  const double range = std::max(most - least, 1e-12);
  constexpr std::size_t kLabel = 9;  // "  3.1234 "
  const std::size_t width = columns > kLabel + 10 ? columns - kLabel : 10;
  const std::size_t across = unicode ? 2 * width : width,
                    down = static_cast<std::size_t>(kCurveRows) * (unicode ? 4 : 1);
  std::vector<unsigned char> cells(width * kCurveRows, 0);
  const std::int64_t first = steps.front().step(), last = std::max(steps.back().step(), first + 1);
  for (const pb::Step& s : steps) {
    if (!std::isfinite(s.loss())) continue;
    const auto x =
        static_cast<std::size_t>((s.step() - first) * static_cast<std::int64_t>(across - 1) / (last - first));
    const auto y = static_cast<std::size_t>(std::lround((most - s.loss()) / range * static_cast<double>(down - 1)));
    static constexpr std::array<std::array<unsigned char, 2>, 4> kDots = {{{1, 8}, {2, 16}, {4, 32}, {64, 128}}};
    if (unicode)
      cells[y / 4 * width + x / 2] |= kDots[y % 4][x % 2];
    else
      cells[y * width + x] = 1;
  }
  std::vector<std::string> out;
  for (std::size_t row = 0; row < kCurveRows; ++row) {
    const bool labelled = row == 0 || row + 1 == kCurveRows;
    std::string line = labelled ? fmt::format("{:8.4f} ", row == 0 ? most : least) : std::string(kLabel, ' ');
    for (std::size_t x = 0; x < width; ++x) {
      const unsigned char cell = cells[row * width + x];
      if (!unicode) {
        line += cell ? '*' : ' ';
      } else {  // U+2800 plus the dots
        line += '\xe2';
        line += static_cast<char>(0xa0 | cell >> 6);
        line += static_cast<char>(0x80 | (cell & 0x3f));
      }
    }
    out.push_back(std::move(line));
  }
  return out;
}

std::string clock_text(double since_epoch) {
  const auto seconds = static_cast<std::time_t>(since_epoch);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return fmt::format("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec);
}

Screen screen_here() {
  Screen out;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) out = {size.ws_col, size.ws_row, true};
  out.unicode = false;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) {
      const std::string_view text = value;
      out.unicode = text.find("UTF-8") != text.npos || text.find("utf8") != text.npos;
      break;
    }
  return out;
}

// Switches the terminal to full screen, and restores it in the destructor.
class FullScreen {
 public:
  FullScreen() {
    had_ = tcgetattr(STDIN_FILENO, &before_) == 0;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    if (had_) (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write_all("\033[?1049h\033[?25l");
  }
  ~FullScreen() {
    write_all("\033[?25h\033[?1049l");
    if (had_) (void)tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  void draw(const std::string& lines) {
    std::string out = "\033[H";
    for (const char c : lines) out += c == '\n' ? std::string("\033[K\n") : std::string(1, c);
    write_all(out + "\033[J");
  }
  // Waits for at most `time`. True if q, Q or Ctrl-C was pressed.
  bool quits_within(std::chrono::milliseconds time) const {
    pollfd wait{STDIN_FILENO, POLLIN, 0};
    char key = 0;
    if (!had_ || poll(&wait, 1, static_cast<int>(time.count())) <= 0) {
      if (!had_) std::this_thread::sleep_for(time);
      return false;
    }
    return read(STDIN_FILENO, &key, 1) == 1 && (key == 'q' || key == 'Q');
  }

 private:
  static void write_all(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
      if (n <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  termios before_{};
  bool had_ = false;
};

volatile std::sig_atomic_t interrupted = 0;

// Follows the steps of a run in a separate thread until the run ends or this object is destroyed.
class Follower {
 public:
  // last: the number of past steps to show first.
  Follower(const Target& target, int last, std::function<void(const pb::Step&)> take)
      : watcher_(target), take_(std::move(take)), thread_([this, last] { follow(last); }) {}
  // Cancels the watch, because a stalled run sends no step that would wake the thread.
  ~Follower() { watcher_.cancel(); }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Waits for at most `time`. True if no more steps will come.
  bool ends_within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return ended_; });
  }

 private:
  void follow(int last) {
    try {
      (void)watcher_.watch(last, [this](const pb::Step& step) {
        take_(step);
        return true;
      });
    } catch (const Error&) {
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  Client watcher_;
  std::function<void(const pb::Step&)> take_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::jthread thread_;  // declared last, so that it ends before the members that it uses
};

std::string step_line(const pb::Step& step, std::int64_t max_steps, double seconds_left) {
  std::string out = text_of(step, max_steps);
  if (seconds_left > 0) out += fmt::format("  {} left", duration_text(seconds_left));
  return out + "\n";
}

void put(const std::string& text) {
  const std::string out = printable(text, true);
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0)
    fail(Exit::failed, "standard output cannot be written");
}

// Prints the newest step once per second, and the last step when the run ends.
void show_lines(Client& client, const Target& target, std::int64_t max_steps) {
  std::mutex mutex;
  std::optional<pb::Step> last;
  Follower follower(target, 1, [&](const pb::Step& step) {
    const std::lock_guard lock(mutex);
    last = step;
  });
  double shown = 0;
  std::int64_t step = -1;
  try {
    do {
      const pb::Status status = client.status();
      std::string out;
      for (const pb::Event& event : status.events())
        if (event.time() > shown) out += fmt::format("{} {}\n", clock_text(event.time()), event.text());
      if (status.events_size() > 0) shown = std::max(shown, status.events(status.events_size() - 1).time());
      if (status.step() != step && status.has_last()) {
        step = status.step();
        out += step_line(status.last(), max_steps, status.seconds_left());
      }
      put(out);
    } while (!follower.ends_within(1s));
  } catch (const Unavailable&) {  // the run has ended, normally or not
    (void)follower.ends_within(1s);
  }
  const std::lock_guard lock(mutex);
  if (last && last->step() > step) put(step_line(*last, max_steps, 0));
}

void show_screen(Client& client, const Target& target) {
  std::mutex mutex;
  std::vector<pb::Step> steps;
  const Follower follower(target, 256, [&](const pb::Step& step) {
    const std::lock_guard lock(mutex);
    // Drop every second one of the older steps, so that the curve still covers the whole run.
    if (steps.size() == kMaxSteps)
      for (std::size_t i = 0; 2 * i + 1 < steps.size(); ++i)
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
    steps.push_back(step);
  });
  FullScreen screen;
  do {
    const pb::Status status = client.status();
    const std::lock_guard lock(mutex);
    screen.draw(screen_text(status, steps, screen_here()));
  } while (interrupted == 0 && !screen.quits_within(1s));
}

}  // namespace

std::string screen_text(const pb::Status& s, const std::vector<pb::Step>& steps, const Screen& screen) {
  const auto columns = static_cast<std::size_t>(std::max(screen.columns, 40));
  const auto rows = static_cast<std::size_t>(std::max(screen.rows, 10));
  std::vector<std::string> lines;
  const auto add = [&](const std::string& text) { lines.push_back(fit(printable(text), columns)); };
  const pb::RunInfo& run = s.run();
  add(fmt::format("{} {:.1f} M parameters, ZeRO-{}, {} on {}, pid {} on {}: {}", run.family(),
                  static_cast<double>(run.parameters()) * 1e-6, run.zero_stage(),
                  counted(static_cast<std::uint64_t>(s.ranks_size()), "rank"),
                  counted(static_cast<std::uint64_t>(s.nodes_size()), "node"), run.pid(), run.host(),
                  s.state() == pb::STARTING   ? s.phase()
                  : s.state() == pb::TRAINING ? "training"
                  : s.state() == pb::STOPPING ? "stopping"
                                              : "ending"));
  const double part = s.max_steps() > 0 ? static_cast<double>(s.step()) / static_cast<double>(s.max_steps()) : 0;
  const std::string left = s.seconds_left() > 0 ? fmt::format(", {} left", duration_text(s.seconds_left())) : "";
  const std::string numbers = fmt::format(" {:.1f}%  step {}/{}{}", 100 * part, s.step(), s.max_steps(), left);
  add(bar(part, columns > numbers.size() + 4 ? columns - numbers.size() : 4, screen.unicode) + numbers);
  if (s.has_last())
    add(fmt::format("loss {}  norm {}  rate {:.3g}  {}  {} per step{}", value_text(s.last().loss(), 4),
                    value_text(s.last().grad_norm(), 3), s.last().learning_rate(),
                    tokens_rate_text(s.tokens_per_second()), step_time_text(s.step_seconds() * 1e3),
                    s.skipped_steps() > 0 ? fmt::format("  {} skipped", s.skipped_steps()) : ""));
  if (rows >= 20 && !steps.empty()) {
    add("");
    for (const std::string& line : curve(steps, columns, screen.unicode)) add(line);
    add(fmt::format("         loss of steps {} to {}", steps.front().step(), steps.back().step()));
  }
  add("");
  std::size_t title = 0;
  for (const pb::Tier& tier : s.memory())
    if (tier.planned_bytes() > 0) title = std::max(title, title_of(tier, run).size());
  for (const pb::Tier& tier : s.memory())
    if (tier.planned_bytes() > 0)
      add(fmt::format("{:<{}} {} {} of {} planned", title_of(tier, run), title,
                      bar(static_cast<double>(tier.measured_bytes()) / static_cast<double>(tier.planned_bytes()), 20,
                          screen.unicode),
                      bytes_text(tier.measured_bytes()), bytes_text(tier.planned_bytes())));
  add(fmt::format("checkpoint: {}", s.has_checkpoint() ? fmt::format("step {}, {} ago", s.checkpoint().step(),
                                                                     duration_text(s.now() - s.checkpoint().time()))
                                                       : "none by this run yet"));
  // If not all ranks fit, sort them by compute time, the slowest first. Events fill the remaining lines.
  std::vector<const pb::Rank*> ranks;
  std::vector<double> times;
  for (const pb::Rank& rank : s.ranks()) {
    ranks.push_back(&rank);
    times.push_back(rank.compute_seconds());
  }
  const std::size_t events = std::min<std::size_t>(static_cast<std::size_t>(s.events_size()), 4);
  const std::size_t taken = lines.size() + 2 + (events > 0 ? events + 1 : 0);
  const std::size_t shown = rows > taken + 1 ? rows - taken : 1;
  if (!times.empty()) {
    const double most = std::max(*std::max_element(times.begin(), times.end()), 1e-12);
    const double median = median_of(times);
    add("");
    add(fmt::format("compute time per rank and step (median {:.1f} ms{})", median * 1e3,
                    ranks.size() > shown ? ", the slowest" : ""));
    if (ranks.size() > shown)
      std::stable_sort(ranks.begin(), ranks.end(), [](const pb::Rank* a, const pb::Rank* b) {
        return a->compute_seconds() > b->compute_seconds();
      });
    for (std::size_t i = 0; i < std::min(shown, ranks.size()); ++i) {
      const pb::Rank& rank = *ranks[i];
      add(fmt::format("{:>4} {:<8} {} {:7.1f} ms {:>4}  {}", rank.rank(), rank.node(),
                      bar(rank.compute_seconds() / most, 20, screen.unicode), rank.compute_seconds() * 1e3,
                      median > 0 ? fmt::format("{:+.0f}%", 100 * (rank.compute_seconds() / median - 1)) : "",
                      rank.place()));
    }
  }
  if (events > 0) add("");
  for (int i = s.events_size() - static_cast<int>(events); i < s.events_size(); ++i)
    add(fmt::format("{} {}", clock_text(s.events(i).time()), s.events(i).text()));
  if (lines.size() > rows) lines.resize(rows);
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) out += lines[i] + (i + 1 < lines.size() ? "\n" : "");
  return out;
}

int top(const CtlOptions& options) {
  run_on_its_host("top", options);
  const Target target = target_of(options);
  Client client(target);
  const pb::Status first = client.status();  // report errors before taking over the screen
  interrupted = 0;
  if (!isatty(STDOUT_FILENO)) {
    show_lines(client, target, first.max_steps());
    return static_cast<int>(Exit::done);
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, [](int) { interrupted = 1; });
  try {
    show_screen(client, target);
  } catch (const Unavailable&) {
    note(fmt::format("the run of pid {} on {} has ended, or cannot be reached", first.run().pid(), first.run().host()));
  }
  return static_cast<int>(Exit::done);
}

}  // namespace strata::launcher::control
