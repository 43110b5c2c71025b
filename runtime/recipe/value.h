#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace strata::runtime {

struct RecipeValue;
// An inline table, or one of a list of tables.
using RecipeTable = std::vector<std::pair<std::string, RecipeValue>>;

// A value as a recipe has it, free of the file format: bool, integer, number, text, or a list or table of these.
struct RecipeValue {
  std::variant<bool, std::int64_t, double, std::string, std::vector<RecipeValue>, RecipeTable> value;
  std::string shown;  // as the user wrote it, for errors
};

// An integer or a finite number.
std::optional<double> number_of(const RecipeValue& value);
// One text or a list of texts.
std::optional<std::vector<std::string>> texts_of(const RecipeValue& value);
// "2GiB", "512MiB", "1.5GB": bytes. nullopt if it is no size, is 0 or above kMostBytes.
std::optional<std::uint64_t> parse_size(std::string_view text);
inline constexpr double kMostBytes = 0x1p62;
// The bytes of a size, however many. nullopt if it is none.
std::optional<double> bytes_of(std::string_view text);

}  // namespace strata::runtime
