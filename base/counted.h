#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

// "1 file", "2 files", "0 files". `many` is the plural, if it is not `one` with an s.
std::string counted(std::uint64_t n, std::string_view one, std::string_view many = {});

// The singular or the plural without the number, for sentences in which the number stands elsewhere or is formatted
// differently.
template <typename Number>
constexpr std::string_view for_count(Number n, std::string_view one, std::string_view many) {
  return n == 1 ? one : many;
}

}  // namespace strata
