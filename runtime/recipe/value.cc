#include "runtime/recipe/value.h"

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

namespace strata::runtime {

std::optional<double> number_of(const RecipeValue& v) {
  if (const auto* integer = std::get_if<std::int64_t>(&v.value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&v.value); number && std::isfinite(*number)) return *number;
  return std::nullopt;
}

std::optional<std::vector<std::string>> texts_of(const RecipeValue& v) {
  if (const auto* text = std::get_if<std::string>(&v.value)) return std::vector{*text};
  const auto* list = std::get_if<std::vector<RecipeValue>>(&v.value);
  if (!list) return std::nullopt;
  std::vector<std::string> out;
  for (const RecipeValue& item : *list) {
    const auto* text = std::get_if<std::string>(&item.value);
    if (!text) return std::nullopt;
    out.push_back(*text);
  }
  return out;
}

std::optional<double> bytes_of(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
      {"kB", 1e3}, {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  double amount = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), amount, std::chars_format::fixed);
  if (error != std::errc{}) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(rest - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const auto& [name, bytes] : kUnits)
    if (unit == name) return std::floor(amount * bytes);
  return std::nullopt;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  const auto bytes = bytes_of(text);
  if (!bytes || !(*bytes >= 1) || *bytes > kMaxByteCount) return std::nullopt;
  return static_cast<std::uint64_t>(*bytes);
}

}  // namespace strata::runtime
