#pragma once
#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

namespace strata::models {

// Rules of Python that the files of transformers and peft rely on.

// Python's json reads NaN, Infinity and numbers of any size. simdjson refuses them, so they are passed to it as marked
// strings. Returns the JSON text with every such number marked.
std::string without_python_numbers(std::string_view json);
// The number that a marked string stands for; nullopt for an ordinary string.
std::optional<double> python_number_of(std::string_view text);
// A node of the marked text as JSON, with its original numbers.
std::string minified(simdjson::dom::element node);
std::string minified(simdjson::dom::object node);

// True if a regular expression from a user's file matches the whole text, like Python's re.fullmatch. Takes polynomial
// time in pattern and text: patterns may come from downloaded files. Throws std::regex_error.
bool matches_whole(const std::string& pattern, std::string_view text);
// Names the first syntax in a pattern that Python refuses or interprets differently from matches_whole(), such as
// "back-references (\\1)"; nullopt if there is none. A pattern that both refuse may pass.
std::optional<std::string> foreign_syntax(std::string_view pattern);

}  // namespace strata::models
