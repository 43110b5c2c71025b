#pragma once
#include <cstdint>
#include <string>

namespace strata::text {

// The id of a token that has none assigned yet.
inline constexpr std::uint32_t kNextId = ~std::uint32_t{0};

// A token that is matched as a unit, before the text is cut into pieces.
struct AddedToken {
  std::uint32_t id = kNextId;
  std::string content = {};
  bool special = false, normalized = false, left_strip = false, right_strip = false, single_word = false;
};

}  // namespace strata::text
