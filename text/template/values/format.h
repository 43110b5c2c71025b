#pragma once
#include <string>
#include <string_view>

#include "text/template/runtime.h"
#include "text/template/values/arguments.h"

namespace strata::text::jinja {

// pattern % value: %s, %d, %f, %x and %%, with `-`, `0`, a width and a precision. Other formats throw Fault.
std::string format_percent(Runtime& runtime, std::string_view pattern, const Value& value);
// pattern.format(...): {}, {0} and {name}, with an alignment, a width, a precision and s, d, f or x. Other fields throw
// Fault.
std::string format_braces(Runtime& runtime, std::string_view pattern, const Arguments& arguments);

}  // namespace strata::text::jinja
