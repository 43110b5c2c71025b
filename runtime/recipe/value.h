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

// A value in a recipe, independent of the file format: bool, integer, number, string, or a list or table of these.
struct RecipeValue {
  std::variant<bool, std::int64_t, double, std::string, std::vector<RecipeValue>, RecipeTable> value;
  std::string shown;  // as the user wrote it, for errors
};

// The value of an integer or a finite number.
std::optional<double> number_of(const RecipeValue& value);
// A string or a list of strings.
std::optional<std::vector<std::string>> texts_of(const RecipeValue& value);
// Bytes of "2GiB", "512MiB" or "1.5GB"; nullopt if it is not a size, is 0, or exceeds kMaxByteCount.
std::optional<std::uint64_t> parse_size(std::string_view text);
inline constexpr double kMaxByteCount = 0x1p62;
// Bytes of a size without a limit; nullopt if it is not a size.
std::optional<double> bytes_of(std::string_view text);

}  // namespace strata::runtime
