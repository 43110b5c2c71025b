#pragma once
#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

namespace strata::models {

// Python's json reads NaN, Infinity and numbers of any size, which simdjson refuses: they are handed to it as marked
// strings. JSON text with every such number marked, for simdjson.
std::string without_python_numbers(std::string_view json);
// The number that a string of such a text stands for; nullopt if it is a string like any other.
std::optional<double> python_number_of(std::string_view text);
// A node of such a text as JSON, with its numbers as they were.
std::string minified(simdjson::dom::element node);
std::string minified(simdjson::dom::object node);

}  // namespace strata::models
