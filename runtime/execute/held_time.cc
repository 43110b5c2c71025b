#include "runtime/execute/held_time.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace strata::runtime {

void HeldTime::begin() {
  for (Wait& wait : waits_) wait.due = true;
}

Span* HeldTime::of_wait(std::size_t task) {
  Wait& wait = waits_[task];
  return std::exchange(wait.due, false) ? &wait.span : nullptr;
}

void HeldTime::add_up() {
  for (Wait& wait : waits_) {
    ms_ += static_cast<double>(std::max<std::int64_t>(0, wait.span.end - wait.span.begin)) * 1e-6;
    wait.span = {};
  }
}

}  // namespace strata::runtime
