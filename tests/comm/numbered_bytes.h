#pragma once
#include <cstddef>
#include <stdexcept>

namespace strata::comm {

// Byte `at` of the data that a rank sends in a round. It differs between rounds, places and ranks.
inline std::byte value(int rank, std::size_t at, int round) {
  return static_cast<std::byte>(at * 31 + static_cast<std::size_t>(rank) * 101 + static_cast<std::size_t>(round) * 7);
}

// For ranks that are threads, in which a test cannot fail directly.
inline void require(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

}  // namespace strata::comm
