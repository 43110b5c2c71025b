#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/view.h"

namespace strata::models {

// Elements [begin, end) of a unit's pool.
struct ElementRange {
  std::size_t begin, end;
  std::size_t size() const { return end - begin; }
};

// A unit's parameters lie in up to three pools, each a flat buffer: trained; frozen; and quantised, which is frozen too
// and stored in a separate format (nf4).
enum class PoolKind : std::uint8_t { trained, frozen, quantised };
inline constexpr std::array<PoolKind, 3> kPools = {PoolKind::trained, PoolKind::frozen, PoolKind::quantised};

// An offset counts elements from the start of a pool; its two highest bits are the PoolKind.
inline constexpr int kPoolBits = 62;
constexpr std::size_t offset_in(PoolKind pool, std::size_t place) {
  return place | std::size_t{static_cast<std::uint8_t>(pool)} << kPoolBits;
}
constexpr PoolKind pool_of(std::size_t offset) {
  return static_cast<PoolKind>(offset >> kPoolBits);
}
constexpr bool is_frozen(std::size_t offset) {
  return pool_of(offset) != PoolKind::trained;
}
constexpr std::size_t place_in_pool(std::size_t offset) {
  return offset & ((std::size_t{1} << kPoolBits) - 1);
}

// Elements of a unit's pools, starting at `begin`, `frozen_begin` and `quantised_begin`: complete pools, or the
// available part of them. Quantised elements have been unpacked. Offsets count from the start of a pool. Frozen
// elements have no gradient: their GradientRange view is empty.
template <typename V>
struct FlatRange {
  V values = {};
  std::size_t begin = 0;
  V frozen = {};
  std::size_t frozen_begin = 0;
  V unpacked = {};
  std::size_t quantised_begin = 0;

  V sub(std::size_t offset, std::size_t count) const {
    if (is_frozen(offset)) {
      if constexpr (std::is_same_v<V, device::View>) return {};
      const bool quantised = pool_of(offset) == PoolKind::quantised;
      const std::size_t first = quantised ? quantised_begin : frozen_begin;
      STRATA_CHECK_LE(first, place_in_pool(offset));
      return (quantised ? unpacked : frozen).sub(place_in_pool(offset) - first, count);
    }
    STRATA_CHECK_LE(begin, offset);
    return values.sub(offset - begin, count);
  }
};
using ParameterRange = FlatRange<device::ConstView>;
using GradientRange = FlatRange<device::View>;

}  // namespace strata::models
