#pragma once
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>

namespace strata::device {

// Thrown by a wait that ended because the run's abort token was set; its cause was reported where it arose.
class Aborted : public std::runtime_error {
 public:
  explicit Aborted(const std::string& cause) : std::runtime_error(cause) {}
};

// One per rank and run. The first error sets it, with rank and cause; every wait of the program (event, collective,
// lane) polls it and ends by throwing Aborted. Thread-safe; owned by the run, outlives lanes and communicators.
class AbortToken {
 public:
  // True for the first caller, whose cause is kept; later causes are dropped.
  bool set(int rank, const std::string& cause);
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  int rank() const;
  std::string cause() const;
  void throw_if_set() const {
    if (is_set()) throw Aborted(cause());
  }

 private:
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  int rank_ = -1;
  std::string cause_;
};

}  // namespace strata::device
