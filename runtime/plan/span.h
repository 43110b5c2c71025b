#pragma once
#include <cstdint>

namespace strata::runtime {

// When a task ran, in ns of the steady clock, or since the start of a simulated step; {0, 0}: it did not run.
struct Span {
  std::int64_t begin = 0, end = 0;
};

}  // namespace strata::runtime
