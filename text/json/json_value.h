#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/values/value.h"

namespace strata::text {

// What is wrong with a JSON text, and at which byte.
struct JsonFault {
  std::string message;
  std::size_t at;
};

// Whether an object may name a field twice: as Python has it, the last counts; or that is a JsonFault.
enum class RepeatedKeys { last_counts, refused };

// A number that a value cannot have as it is written: an integer beyond 64 bits, one beyond a double (1e400), NaN or
// Infinity; and the field of the outermost object that it stands in, empty if there is none.
struct OddNumber {
  std::string field, written;
  std::size_t at = 0;
};

// One JSON value as Python's json.loads makes it, objects in their order. Throws JsonFault for what is not JSON or not
// UTF-8, is nested deeper than jinja::Value allows, or holds an OddNumber (not of an integer beyond 64 bits that
// is a value of the outermost object, where nobody looks at numbers). With `odd` these are the nearest double, and are
// listed there: it is the caller's to refuse those of fields that it reads.
jinja::Value parse_json(std::string_view text, RepeatedKeys repeated = RepeatedKeys::last_counts,
                        std::vector<OddNumber>* odd = nullptr);

// What a value is, as messages say it: "a string", "an integer", "an object", "null".
std::string_view kind_text(const jinja::Value& value);

// Whether a value is null, or an empty text, list or object.
bool says_nothing(const jinja::Value& value);

}  // namespace strata::text
