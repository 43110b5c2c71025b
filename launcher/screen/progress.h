#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "runtime/plan/job.h"
#include "runtime/run/trainer.h"

namespace strata::launcher {

// Whether `out` gets one live line instead of a line per step, because it is a terminal or STRATA_PROGRESS says so.
// Throws Error{usage} if STRATA_PROGRESS is neither "live" nor "lines".
bool shows_live_line(std::FILE* out);
// The width of the terminal of `out` or of this process; if unknown, COLUMNS, otherwise 80.
std::size_t terminal_columns(std::FILE* out);

// The output during a run, on rank 0's stderr. On a terminal, this is one live line; elsewhere, it is a line without
// control codes for the first step, every report.every-th, the last, and each skipped step. mpirun puts a pipe between
// the ranks and the terminal, so STRATA_PROGRESS=live in the environment says that the output ends at a terminal (whose
// width is COLUMNS, otherwise the width of the process's own terminal, otherwise 80), and STRATA_PROGRESS=lines asks
// for a line per step. Throws Error{usage} for any other value.
class Progress {
 public:
  Progress(const runtime::Job& job, std::FILE* out);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const runtime::StepReport& report);
  // Prints a sentence for the user on a separate line.
  void print_note(std::string_view text);

 private:
  void show_live(std::vector<std::string> fields, bool last);

  const runtime::Job& job_;
  std::FILE* out_;
  bool live_;
  bool open_ = false;  // the live line has not been ended by a line break yet
  std::int64_t shown_ = 0;
  double smooth_ms_ = 0;
  std::chrono::steady_clock::time_point drawn_;
};

// Shows on stderr the progress of work that takes more than two seconds, and the time left: on a terminal in one line
// that disappears at the end, elsewhere in one line per ten seconds. Shows nothing for quicker work. Any thread may
// call show(). Under mpirun, stderr is a pipe and does not count as a terminal.
class Activity {
 public:
  enum class Unit : std::uint8_t { count, bytes };
  // `what` precedes the numbers: "reading weights". `prints`: false on ranks that print nothing.
  explicit Activity(std::string what, Unit unit = Unit::count, bool prints = true, std::FILE* out = stderr);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  // Shows `done` of `all` (0: unknown). `more` follows the numbers: "loss 2.31".
  void show(std::uint64_t done, std::uint64_t all, const std::string& more = {});
  // show() as an Advance; the activity must outlive it.
  Advance advance() {
    return [this](std::uint64_t done, std::uint64_t all) { show(done, all); };
  }
  // Removes the line, before something else is printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string text(std::uint64_t done, std::uint64_t all, const std::string& more, double seconds) const;

  std::string what_;
  Unit unit_;
  bool prints_, live_;
  std::FILE* out_;
  std::mutex mutex_;
  Clock::time_point start_ = Clock::now(), next_;
  bool open_ = false;  // the line is on the screen
};

}  // namespace strata::launcher
