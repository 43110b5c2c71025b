#pragma once
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace strata {

// The number that the whole text is, read as std::from_chars does (in any locale, without spaces or a plus sign).
// nullopt if the text is anything else, or if the number does not fit. `how`: the base of an integer, or the format of
// a float.
template <typename Number, typename... How>
std::optional<Number> parse_number(std::string_view text, How... how) {
  Number out{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, out, how...);
  return error == std::errc() && rest == end ? std::optional(out) : std::nullopt;
}

}  // namespace strata
