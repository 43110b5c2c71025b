#pragma once
#include <algorithm>
#include <cstddef>

#include "device/numeric/dtype.h"

namespace strata::device::cpu {

// The elements in one task of elementwise work: small enough to share out, large enough to hide a task's overhead.
inline constexpr std::size_t kGrain = 32768;

constexpr std::size_t index(DType t) {
  return static_cast<std::size_t>(t);
}

}  // namespace strata::device::cpu
