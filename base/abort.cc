#include "base/abort.h"

namespace strata {

bool AbortToken::set(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (set_.load(std::memory_order_relaxed)) return false;
  failure_ = failure;
  set_.store(true, std::memory_order_release);
  return true;
}

Failure AbortToken::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace strata
