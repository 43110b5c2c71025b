#pragma once
#include <chrono>

namespace strata {

// Seconds since 1970 by the wall clock, which people and other machines share. It may jump.
double seconds_since_epoch();

// The clock for durations. It never jumps.
using SteadyClock = std::chrono::steady_clock;

inline double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace strata
