#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// The time that tasks have waited until a checkpoint had read the state that they overwrite. Only each task's first
// wait after the start of a checkpoint counts: later ones find it already read.
class HeldTime {
 public:
  explicit HeldTime(std::size_t tasks) : waits_(tasks) {}

  // Call it when a checkpoint begins.
  void begin() {
    for (Wait& wait : waits_) wait.due = true;
  }
  // The span in which to record the wait that the task issues now; null if it does not count. The wait writes it
  // when it runs, which must be before add_up().
  Span* of_wait(std::size_t task) {
    Wait& wait = waits_[task];
    return std::exchange(wait.due, false) ? &wait.span : nullptr;
  }
  // Adds the recorded waits to ms(). The lanes must have been waited for.
  void add_up() {
    for (Wait& wait : waits_) {
      ms_ += static_cast<double>(std::max<std::int64_t>(0, wait.span.end - wait.span.begin)) * 1e-6;
      wait.span = {};
    }
  }

  double ms() const { return ms_; }

 private:
  struct Wait {
    bool due = false;
    Span span;
  };
  std::vector<Wait> waits_;  // one per task
  double ms_ = 0;
};

}  // namespace strata::runtime
