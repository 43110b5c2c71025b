#pragma once
#include <cstddef>

#include "device/view.h"

namespace strata::models {

// Elements [begin, end) of a unit's flat buffer.
struct ElementRange {
  std::size_t begin, end;
  std::size_t size() const { return end - begin; }
};

// Elements of a unit's flat buffer from `begin` on: all of it, or the part that is at hand. Offsets count from the
// start of the unit.
template <typename V>
struct FlatRange {
  V values;
  std::size_t begin = 0;

  V sub(std::size_t offset, std::size_t count) const {
    STRATA_CHECK_LE(begin, offset);
    return values.sub(offset - begin, count);
  }
};
using ParameterRange = FlatRange<device::ConstView>;
using GradientRange = FlatRange<device::View>;

}  // namespace strata::models
