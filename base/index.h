#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace strata {

// An id as the place of its element in a vector or an array: an int that is -1 elsewhere and not here, or an
// enumerator.
template <class Id>
requires std::is_enum_v<Id> || std::same_as<Id, int>
constexpr std::size_t index(Id id) {
  return static_cast<std::size_t>(id);
}

}  // namespace strata
