#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace strata {

// The index of an id's element in a vector or an array. An id is an enumerator or an int, but not -1, which means
// "none" elsewhere.
template <class Id>
requires std::is_enum_v<Id> || std::same_as<Id, int>
constexpr std::size_t index(Id id) {
  return static_cast<std::size_t>(id);
}

}  // namespace strata
