#pragma once
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace strata::comm {

// Like World::exchange(), but for values: returns the values of all ranks, in rank order. Every rank passes the same
// number of values. Collective.
template <typename T>
std::vector<T> exchange_values(World& world, std::span<const T> own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all;
  for (const std::string& bytes : world.exchange({reinterpret_cast<const char*>(own.data()), own.size_bytes()})) {
    STRATA_CHECK_EQ(bytes.size(), own.size_bytes());
    const std::size_t before = all.size();
    all.resize(before + own.size());
    std::memcpy(all.data() + before, bytes.data(), bytes.size());
  }
  return all;
}
// The same for one value per rank.
template <typename T>
std::vector<T> exchange_value(World& world, const T& own) {
  return exchange_values(world, std::span<const T>(&own, 1));
}

}  // namespace strata::comm
