#pragma once
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>

#include "base/error.h"

namespace strata {

// Thrown by a wait that ended because the run's abort token was set; its cause was reported where it arose.
class Aborted : public std::runtime_error {
 public:
  explicit Aborted(const std::string& cause) : std::runtime_error(cause) {}
};

// What ended a run: the rank that failed first and why. `told`: that rank prints the cause itself; false if it died
// or left without a word, and another has to speak.
struct Failure {
  int rank = -1;
  std::string cause;
  Exit code = Exit::failed;
  bool told = true;
};

// One per rank and run. The first error sets it; every wait of the program (event, collective,
// lane) polls it and ends by throwing Aborted. Thread-safe; owned by the run, outlives lanes and communicators.
class AbortToken {
 public:
  // True for the first caller, whose failure is kept; later ones are dropped.
  bool set(const Failure& failure);
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  Failure failure() const;
  void throw_if_set() const {
    if (is_set()) throw Aborted(failure().cause);
  }

 private:
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  Failure failure_;
};

}  // namespace strata
