#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

#include "base/advance.h"

namespace strata::launcher {

// Shows on stderr the progress of work that takes more than two seconds, and how long it will still take: on a terminal
// in one line that disappears at the end, elsewhere in one line per ten seconds. Quicker work shows nothing. Any thread
// may call show(). Under mpirun, stderr is a pipe and does not count as a terminal.
class Activity {
 public:
  enum class Unit : std::uint8_t { count, bytes };
  // `what` precedes the numbers: "reading weights". `speaks`: false on ranks that print nothing.
  explicit Activity(std::string what, Unit unit = Unit::count, bool speaks = true, std::FILE* out = stderr);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  // Shows `done` of `all` (0: unknown). `more` follows the numbers: "loss 2.31".
  void show(std::uint64_t done, std::uint64_t all, const std::string& more = {});
  // show() as an Advance; the activity must outlive it.
  Advance advance() {
    return [this](std::uint64_t done, std::uint64_t all) { show(done, all); };
  }
  // Removes the line before something else is printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string text(std::uint64_t done, std::uint64_t all, const std::string& more, double seconds) const;

  std::string what_;
  Unit unit_;
  bool speaks_, live_;
  std::FILE* out_;
  std::mutex mutex_;
  Clock::time_point start_ = Clock::now(), next_;
  bool open_ = false;  // the line is on the screen
};

}  // namespace strata::launcher
