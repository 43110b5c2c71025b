#pragma once
#include <ctime>
#include <string_view>

#include "text/template/runtime.h"

namespace strata::text::jinja {

// What every template can call: range, dict, namespace, joiner, cycler, raise_exception, strftime_now. Null for another
// name; `runtime` owns the result.
Object* make_global(Runtime& runtime, std::string_view name, const std::tm& now);

}  // namespace strata::text::jinja
