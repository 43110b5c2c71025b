#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata::text {

// CSV and TSV (RFC 4180): fields between separators, in double quotes if they hold separators, line breaks or
// quotes, which are then doubled. A quote inside a field that does not begin with one stands for itself.

// What to say if a column is not there: the header may be the first record.
inline constexpr std::string_view kHeaderNames =
    "the first line of a table names its columns: if it is a record, put a line of names before it";

// What is wrong with a record, without its place.
struct TableFault {
  std::string message;
};

// Where the record that begins at `at` ends, behind its line break; npos if the text ends before.
std::size_t record_end(std::string_view text, std::size_t at, char separator);
// The fields of a record, with or without its line break. Throws TableFault for a quote that is not closed, text behind
// one that closes a field, and a carriage return alone.
std::vector<std::string> fields_of(std::string_view record, char separator);

}  // namespace strata::text
