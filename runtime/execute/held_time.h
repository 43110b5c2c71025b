#pragma once
#include <cstddef>
#include <vector>

#include "runtime/plan/span.h"

namespace strata::runtime {

// For how long tasks have waited for a checkpoint to read what they write. The first wait of each task behind a
// checkpoint's begin counts: whoever waits again, for what was long read, does not wait.
class HeldTime {
 public:
  explicit HeldTime(std::size_t tasks) : waits_(tasks) {}

  // A checkpoint begins.
  void begin();
  // Where the task's wait, which is issued now, has its times written; null: it does not count. They are written when
  // it runs, until add_up().
  Span* of_wait(std::size_t task);
  // Once the lanes were waited for.
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
