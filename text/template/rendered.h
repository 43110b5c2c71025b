#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace strata::text::jinja {

// Bytes [begin, end) of a text.
struct TextSpan {
  std::size_t begin, end;
  bool operator==(const TextSpan&) const = default;
};

struct Rendered {
  std::string text;
  std::vector<TextSpan> generated;  // what {% generation %} blocks wrote, in order
  bool lost = false;                // a block was in a macro or in a stored block, so its place in the text is unknown
};

}  // namespace strata::text::jinja
