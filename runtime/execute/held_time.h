#pragma once
#include <cstddef>
#include <vector>

#include "runtime/plan/span.h"

namespace strata::runtime {

// The time for which tasks have waited until a checkpoint had read what they overwrite. Only each task's first wait
// after the begin of a checkpoint counts: later ones find it already read.
class HeldTime {
 public:
  explicit HeldTime(std::size_t tasks) : waits_(tasks) {}

  // To be called when a checkpoint begins.
  void begin();
  // The span in which to record the wait that the task issues now; null if it does not count. The wait writes it
  // when it runs, which must be before add_up().
  Span* of_wait(std::size_t task);
  // Adds the recorded waits to ms(). The lanes must have been waited for.
  void add_up();

  double ms() const { return ms_; }

 private:
  struct Wait {
    bool due = false;
    Span span;
  };
  std::vector<Wait> waits_;  // by task
  double ms_ = 0;
};

}  // namespace strata::runtime
