#pragma once
#include <algorithm>
#include <cstddef>

#include "device/numeric/dtype.h"

namespace strata::device::cpu {

// Elements of a task of elementwise work: small enough to share out, large enough to make a task's cost vanish.
inline constexpr std::size_t kGrain = 32768;

constexpr std::size_t index(DType t) {
  return static_cast<std::size_t>(t);
}

}  // namespace strata::device::cpu
