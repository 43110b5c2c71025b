#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata::text {

// CSV and TSV (RFC 4180): fields between separators, in double quotes if they hold separators, line breaks or
// quotes, which are then doubled.

// Where the record that begins at `at` ends, behind its line break; npos if the text ends before.
std::size_t record_end(std::string_view text, std::size_t at);
// The fields of a record, with or without its line break. Quotes inside a field without quotes stand for themselves.
std::vector<std::string> fields_of(std::string_view record, char separator);

}  // namespace strata::text
