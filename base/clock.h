#pragma once
#include <chrono>

namespace strata {

// Seconds since 1970 on the wall clock, which people and other machines share. It may jump.
inline double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The clock for durations. It never jumps.
using SteadyClock = std::chrono::steady_clock;

inline double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace strata
