#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace strata::launcher {

// The median of at least one value; for an even number of values, the larger of the two in the middle.
inline double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace strata::launcher
