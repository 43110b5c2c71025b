#pragma once
#include <optional>
#include <string>

#include "text/template/values/value.h"

namespace strata::text::jinja {

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // of one level; none: all on one line
  std::string between_items = ", ", behind_key = ": ";
};

// Python's json.dumps: NaN and Infinity as they are, keys that are numbers as texts. Throws Fault for a value that JSON
// does not have, and at a limit of `meter`.
std::string json_text(const Value& value, const JsonStyle& style, Meter& meter);
// Of a value that was read, which holds no part twice.
std::string json_text(const Value& value, const JsonStyle& style);

}  // namespace strata::text::jinja
