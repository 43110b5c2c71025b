#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>

#include "base/error.h"

namespace strata {

// Thrown by a wait when the run's abort token is set. The cause was reported where the failure occurred.
class Aborted : public std::runtime_error {
 public:
  explicit Aborted(const std::string& cause) : std::runtime_error(cause) {}
};

// The failure that ended a run: the rank that failed first, and the cause. If `self_reported`, that rank prints the
// cause itself. Otherwise it died or left without a message, and another rank prints the cause.
struct Failure {
  int rank = -1;
  std::string cause;
  Exit code = Exit::failed;
  bool self_reported = true;
};

// Ends all waits of a rank after an error. The first error sets the token. Every wait in the program (event,
// collective, lane) polls it and throws Aborted once it is set. Each rank of a run has one. The run owns it, and it
// outlives lanes and communicators. Thread-safe.
class AbortToken {
 public:
  // Keeps the first failure and ignores later ones. True for the first caller.
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

// Why a run ended. `strata launch` decides whether to restart the run by this value, never by a message.
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
