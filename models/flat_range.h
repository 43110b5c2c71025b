#pragma once
#include <cstddef>
#include <type_traits>

#include "device/view.h"

namespace strata::models {

// Elements [begin, end) of a pool of a unit.
struct ElementRange {
  std::size_t begin, end;
  std::size_t size() const { return end - begin; }
};

// A unit's parameters lie in two pools, each a flat buffer: what is trained, and what is frozen. An offset counts
// elements from the start of a pool, and its highest bit says of which.
inline constexpr std::size_t kFrozen = ~(~std::size_t{0} >> 1);
constexpr bool is_frozen(std::size_t offset) {
  return (offset & kFrozen) != 0;
}
constexpr std::size_t place_in_pool(std::size_t offset) {
  return offset & ~kFrozen;
}

// Elements of a unit's pools from `begin` and `frozen_begin` on: all of them, or the part that is at hand. Offsets
// count from the starts of the pools. Nothing that is frozen has a gradient: its view is empty.
template <typename V>
struct FlatRange {
  V values = {};
  std::size_t begin = 0;
  V frozen = {};
  std::size_t frozen_begin = 0;

  V sub(std::size_t offset, std::size_t count) const {
    if (is_frozen(offset)) {
      if constexpr (std::is_same_v<V, device::View>) return {};
      STRATA_CHECK_LE(frozen_begin, place_in_pool(offset));
      return frozen.sub(place_in_pool(offset) - frozen_begin, count);
    }
    STRATA_CHECK_LE(begin, offset);
    return values.sub(offset - begin, count);
  }
};
using ParameterRange = FlatRange<device::ConstView>;
using GradientRange = FlatRange<device::View>;

}  // namespace strata::models
