#include "models/files/pattern.h"

#include <regex>

namespace strata::models {

bool matches_whole(const std::string& pattern, std::string_view text) {
  // An option of libstdc++, without back-references. With its default algorithm some patterns take forever.
  const std::regex compiled(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
  return std::regex_match(text.begin(), text.end(), compiled);
}

}  // namespace strata::models
