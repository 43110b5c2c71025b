#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

#include "base/advance.h"

namespace strata::launcher {

// Says on stderr how far something is that takes more than two seconds, and how long it will still take: on a terminal
// in one line that goes with its end, elsewhere in a line per ten seconds. What is quicker says nothing. Any thread may
// show; a terminal behind mpirun's pipe counts as none.
class Activity {
 public:
  enum class Unit : std::uint8_t { count, bytes };
  // `what` goes before the numbers: "reading weights". `speaks`: false on ranks that keep silent.
  explicit Activity(std::string what, Unit unit = Unit::count, bool speaks = true, std::FILE* out = stderr);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  // done of all (0: unknown). `more` follows the numbers: "loss 2.31".
  void show(std::uint64_t done, std::uint64_t all, const std::string& more = {});
  // show(), for who is given an Advance; the activity outlives it.
  Advance advance() {
    return [this](std::uint64_t done, std::uint64_t all) { show(done, all); };
  }
  // Takes the line away, before something else is written.
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
  bool open_ = false;  // the line is there
};

}  // namespace strata::launcher
