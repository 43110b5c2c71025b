#pragma once
#include <atomic>
#include <cstdint>
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

// The failure that ended a run: the rank that failed first, and the cause. `self_reported` is true if that rank prints
// the cause itself. It is false if the rank died or left without a message; then another rank prints the cause.
struct Failure {
  int rank = -1;
  std::string cause;
  Exit code = Exit::failed;
  bool self_reported = true;
};

// One per rank and run. The first error sets it. Every wait in the program (event, collective, lane) polls it, and ends
// by throwing Aborted. Thread-safe. The run owns it; it outlives lanes and communicators.
class AbortToken {
 public:
  // True for the first caller, whose failure is kept. Later failures are dropped.
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

// Why a run ended. `launch` decides by this, and never by a message, whether to start the run again.
struct EndReason {
  enum class Kind : std::uint8_t {
    other,
    signal,      // a signal asked the run to stop
    request,     // the control service or checkpoint.stop_after asked the run to stop
    not_finite,  // the loss or the gradient norm of step `step` is not finite
    overflow,    // the run's numbers do not fit fp16: a restart would overflow again
  };
  Kind kind = Kind::other;
  std::int64_t step = 0;

  bool is_stop() const { return kind == Kind::signal || kind == Kind::request; }
  bool operator==(const EndReason&) const = default;
};

}  // namespace strata
