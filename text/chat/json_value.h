#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "text/template/values/value.h"

namespace strata::text {

// What is wrong with a JSON text, and at which byte.
struct JsonFault {
  std::string message;
  std::size_t at;
};

// Whether an object may name a field twice: as Python has it, the last counts; or that is a JsonFault.
enum class RepeatedKeys { last_counts, refused };

// One JSON value as Python's json.loads makes it, objects in their order. Throws JsonFault for what is not JSON or not
// UTF-8, is nested deeper than jinja::Value allows, or holds an integer that 64 bits do not, unless it is a value of
// the outermost object, where nobody looks at numbers.
jinja::Value parse_json(std::string_view text, RepeatedKeys repeated = RepeatedKeys::last_counts);

// What a value is, as messages say it: "a string", "an integer", "an object", "null".
std::string_view kind_text(const jinja::Value& value);

}  // namespace strata::text
