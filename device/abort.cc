#include "device/abort.h"

namespace strata::device {

bool AbortToken::set(int rank, const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (set_.load(std::memory_order_relaxed)) return false;
  rank_ = rank;
  cause_ = cause;
  set_.store(true, std::memory_order_release);
  return true;
}

int AbortToken::rank() const {
  const std::lock_guard lock(mutex_);
  return rank_;
}

std::string AbortToken::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

}  // namespace strata::device
