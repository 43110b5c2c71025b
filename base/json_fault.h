#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

// Why a text is no JSON, for the user: parsers say no place, and use words of their own.
struct JsonFault {
  std::size_t line;   // from 1
  std::string found;  // "a string without its closing quote"
};
// The first fault of a text; none: it is JSON of at most `levels` levels, whose numbers are finite in double precision.
std::optional<JsonFault> find_json_fault(std::string_view text, std::size_t levels = 1024);

// "a string without its closing quote in line 3": what a text holds that a parser has refused. Of one without a fault
// that is what parsers refuse all the same (a byte order mark, half of a surrogate pair, an integer of more than 64
// bits), else "another value".
std::string found_in_json(std::string_view text, std::size_t levels = 1024);

}  // namespace strata
