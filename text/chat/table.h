#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata::text {

// CSV and TSV (RFC 4180): fields between separators. Fields with separators, line breaks or quotes are in double
// quotes, and the quotes in them are doubled. If a field does not begin with a quote, a quote inside it is an ordinary
// character.

// The hint for a missing column: the header may be the first record.
inline constexpr std::string_view kHeaderNames =
    "the first line of a table names its columns: if it is a record, put a line of names before it";

// A fault in a record; the caller adds the place.
struct TableFault {
  std::string message;
};

// The end of the record that begins at `at`, after its line break; npos if the text ends first.
std::size_t record_end(std::string_view text, std::size_t at, char separator);
// The fields of a record, with or without its line break. Throws TableFault for a quote that is not closed, for text
// after a closing quote, and for a carriage return without a line feed.
std::vector<std::string> fields_of(std::string_view record, char separator);

}  // namespace strata::text
