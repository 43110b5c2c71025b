#pragma once
#include <cstdint>

namespace strata {

// Why a run ended, for those who decide whether to start it again: they decide by this and never by a sentence.
struct EndReason {
  enum class Kind : std::uint8_t {
    other,
    signal,      // a signal asked for a stop
    request,     // the control service or checkpoint.stop_after asked for a stop
    not_finite,  // the loss or the gradient norm of step `step`
  };
  Kind kind = Kind::other;
  std::int64_t step = 0;

  bool is_stop() const { return kind == Kind::signal || kind == Kind::request; }
  bool operator==(const EndReason&) const = default;
};

}  // namespace strata
