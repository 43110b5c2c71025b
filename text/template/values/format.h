#pragma once
#include <string>
#include <string_view>

#include "text/template/runtime.h"
#include "text/template/values/arguments.h"

namespace strata::text::jinja {

// pattern % value: %s %r %d %i %x %X %o %c %e %f %g %%, with flags, width, precision and names of a dict's keys.
std::string format_percent(Runtime& runtime, std::string_view pattern, const Value& value);
// pattern.format(...): {}, {0}, {name}, {name.attribute}, {name[key]}, with !s or !r and a format of text or numbers.
std::string format_braces(Runtime& runtime, std::string_view pattern, const Arguments& arguments);

}  // namespace strata::text::jinja
