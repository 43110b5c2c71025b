#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace strata::text::jinja {

// Bytes [begin, end) of a text.
struct Stretch {
  std::size_t begin, end;
  bool operator==(const Stretch&) const = default;
};

struct Rendered {
  std::string text;
  std::vector<Stretch> generated;  // what {% generation %} blocks wrote, in order
  bool lost = false;               // a block was in a macro or in a stored block, so its place is unknown
};

}  // namespace strata::text::jinja
