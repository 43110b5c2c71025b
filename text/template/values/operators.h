#pragma once
#include <string>

#include "text/template/runtime.h"

namespace strata::text::jinja {

// `sign` is one of + - * / // % **.
Value binary(Runtime& runtime, const std::string& sign, const Value& a, const Value& b);
// `sign` is one of == != < <= > >= in, not in.
bool compare(Runtime& runtime, const std::string& sign, const Value& a, const Value& b);
Value negative(const Value& value);
bool contains(Runtime& runtime, const Value& container, const Value& item);

}  // namespace strata::text::jinja
