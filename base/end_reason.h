#pragma once
#include <cstdint>

namespace strata {

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
