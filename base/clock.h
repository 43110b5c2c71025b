#pragma once
#include <chrono>

namespace strata {

// Seconds since 1970, of the clock that people and other machines go by: it may jump.
double seconds_since_epoch();

// The clock by which durations are measured: it never jumps.
using SteadyClock = std::chrono::steady_clock;

inline double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace strata
