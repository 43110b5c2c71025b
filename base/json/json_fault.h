#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

// Why a text is not JSON, in words for the user. Parsers do not give the line, and their wording differs.
struct JsonFault {
  std::size_t line;   // counted from 1
  std::string found;  // "a string without its closing quote"
};
// The first fault of a text. None: the text is JSON with at most `levels` levels, and its numbers are finite in double
// precision.
std::optional<JsonFault> find_json_fault(std::string_view text, std::size_t levels = 1024);

// "a string without its closing quote in line 3": what is wrong with a text that a parser has refused. If the text has
// no fault, the answer is something valid that parsers may refuse (a byte order mark, half of a surrogate pair, an
// integer of more than 64 bits), otherwise "another value".
std::string found_in_json(std::string_view text, std::size_t levels = 1024);

}  // namespace strata
