#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/values/value.h"

namespace strata::text {

// A fault in a JSON text, and its byte.
struct JsonFault {
  std::string message;
  std::size_t at;
};

// Whether an object may name a field twice. If it may, the last one counts, as in Python. Otherwise it is a JsonFault.
enum class RepeatedKeys { last_counts, refused };

// A number that a value cannot represent as written: an integer beyond 64 bits, a number beyond a double (1e400), NaN
// or Infinity. `field`: the field of the outermost object that contains it; empty if there is none.
struct UnrepresentableNumber {
  std::string field, written;
  std::size_t at = 0;
};

// One JSON value, as Python's json.loads makes it; objects keep their order. Throws JsonFault for text that is not JSON
// or not UTF-8, is nested deeper than jinja::Value allows, or contains an UnrepresentableNumber (except integers beyond
// 64 bits as direct values of the outermost object, where numbers are not read). With `odd`, these numbers become the
// nearest double and are listed in `odd`, and the caller must refuse those in fields that it reads.
jinja::Value parse_json(std::string_view text, RepeatedKeys repeated = RepeatedKeys::last_counts,
                        std::vector<UnrepresentableNumber>* odd = nullptr);

// The type of a value, for messages: "a string", "an integer", "an object", "null".
std::string_view kind_text(const jinja::Value& value);

// Whether a value is null, or is an empty text, list or object.
bool is_empty_value(const jinja::Value& value);

}  // namespace strata::text
