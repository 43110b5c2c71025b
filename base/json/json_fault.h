#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

// Why a text is not JSON, worded for the user. Parsers do not report the line, and their wording differs.
struct JsonFault {
  std::size_t line;   // counted from 1
  std::string found;  // "a string without its closing quote"
};
// The first fault of a text; nullopt if the text is JSON with at most `levels` nested levels and all its numbers are
// finite in double precision.
std::optional<JsonFault> find_json_fault(std::string_view text, std::size_t levels = 1024);

// Describes why a parser refused a text: "a string without its closing quote on line 3". If the text has no fault, this
// names something valid that parsers may refuse (a byte order mark, half of a surrogate pair, an integer of more than
// 64 bits) or, if there is none, returns "another value".
std::string found_in_json(std::string_view text, std::size_t levels = 1024);

}  // namespace strata
