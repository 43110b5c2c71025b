#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Python's str methods on UTF-8. Lengths and places are in characters (code points) unless stated otherwise. Texts must
// be valid UTF-8.
namespace strata::text::jinja {

std::size_t length_of(std::string_view text);
// The byte at which the character with this number begins. Numbers from the length on give the end of the text.
std::size_t byte_of(std::string_view text, std::size_t character);
std::vector<std::string_view> characters_of(std::string_view text);

// str.isspace() for one character.
bool is_space(char32_t code);
enum class Side { left, right, both };
// Removes `characters`, or white space if none are given, from the sides.
std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters = std::nullopt);

// Splits at `separator` (not empty), with at most `most` cuts (negative: all), from the left or the right.
std::vector<std::string_view> split(std::string_view text, std::string_view separator, std::int64_t most,
                                    bool from_right);
// Words separated by white space.
std::vector<std::string_view> words(std::string_view text, std::int64_t most);
std::vector<std::string_view> lines(std::string_view text);

std::string replace(std::string_view text, std::string_view old, std::string_view by, std::int64_t most);
// Each character becomes one, except ß and Latin ligatures, which upper() splits.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);

// repr() of a text and of a number, for which str() is the same.
std::string repr_of(std::string_view text);
std::string repr_of(double number);
// Writes <, >, &, ' and " as HTML entities.
std::string escape(std::string_view text);

}  // namespace strata::text::jinja
