#pragma once
#include <cstdint>

namespace strata::runtime {

// When a task ran, in ns: of the steady clock, or of a simulated step's own; {0, 0}: it did not.
struct Span {
  std::int64_t begin = 0, end = 0;
};

}  // namespace strata::runtime
