#pragma once
#include <optional>
#include <string>

#include "text/template/values/value.h"

namespace strata::text::jinja {

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // the indentation of one level; empty: everything on one line
  std::string between_items = ", ", after_key = ": ";
};

// Python's json.dumps: NaN and Infinity are unquoted, and numeric keys become texts. Throws Fault for a value that JSON
// cannot represent, and at a limit of `meter`.
std::string json_text(const Value& value, const JsonStyle& style, Meter& meter);
// Without a meter, for a value that was read from a file. It shares no parts, so its text is not larger than the file.
std::string json_text(const Value& value, const JsonStyle& style);

}  // namespace strata::text::jinja
