#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/documents.h"
#include "text/template/values/value.h"

namespace strata::text {

// The place of a record in a part: a line of JSONL or a row of a table.
struct RecordLocation {
  const DocumentPart& part;
  std::uint64_t line;  // line number in the input, from 1
  std::size_t at;      // offset in the part, in bytes
  std::string_view text;

  // Throws Error{code} with the file, the line, the offset, and `what`.
  [[noreturn]] void bad(std::string_view what, Exit code = Exit::corrupt) const;
};

// Calls use() for each record that is not blank until it returns false.
void each_record(const DocumentPart& part, const std::function<bool(const RecordLocation&)>& use);
// The names in a table's header; empty for lines. Throws Error{corrupt} if a name occurs twice.
std::vector<std::string> header_names(const DocumentPart& part);
// The object in a line, or a table's row with `names` as its keys. Throws Error{corrupt} for anything else, for a JSON
// object that names a field twice, and for an UnrepresentableNumber in one of the fields `read`.
jinja::Value value_of(const RecordLocation& place, const std::vector<std::string>& names,
                      const std::vector<std::string>& read = {});
// Throws Error{corrupt} if the line begins with a byte order mark.
void refuse_marks(const RecordLocation& place);
// The first record of a part, for inspection; nullopt if the part has none.
std::optional<jinja::Value> first_record(const DocumentPart& part);

}  // namespace strata::text
