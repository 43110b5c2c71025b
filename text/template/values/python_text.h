#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Python's str methods on UTF-8. Lengths and places are in characters (code points) unless stated otherwise. Texts are
// valid UTF-8.
namespace strata::text::jinja {

std::size_t length_of(std::string_view text);
// The byte at which a character begins, by its number. Numbers from the length on give the text's end.
std::size_t byte_of(std::string_view text, std::size_t character);
std::vector<std::string_view> characters_of(std::string_view text);

// str.isspace() of one character.
bool is_space(char32_t code);
enum class Side { left, right, both };
// Removes `characters` from the sides, or white space if none are given.
std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters = std::nullopt);

// Splits at `separator` (not empty), with at most `most` cuts (negative: all), from the left or the right.
std::vector<std::string_view> split(std::string_view text, std::string_view separator, std::int64_t most,
                                    bool from_right);
// Words separated by white space.
std::vector<std::string_view> words(std::string_view text, std::int64_t most, bool from_right);
std::vector<std::string_view> lines(std::string_view text, bool keep_ends);

std::string replace(std::string_view text, std::string_view old, std::string_view by, std::int64_t most);
// One character becomes one, except ß and Latin ligatures, which `upper` splits.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);        // str.title()
std::string title_words(std::string_view text);  // Jinja's filter `title`
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);
bool is_alphabetic(std::string_view text);
bool is_decimal(std::string_view text);

// repr() of a text and of a number; the latter is also its str().
std::string repr_of(std::string_view text);
std::string repr_of(double number);
// Writes <, >, &, ' and " as HTML entities.
std::string escape(std::string_view text);

}  // namespace strata::text::jinja
