#include "models/freeze.h"

#include <fnmatch.h>

#include <algorithm>

namespace strata::models {

bool is_frozen_by(std::span<const std::string> patterns, std::string_view name) {
  return std::ranges::any_of(patterns, [whole = std::string(name)](const std::string& pattern) {
    return fnmatch(pattern.c_str(), whole.c_str(), 0) == 0;
  });
}

}  // namespace strata::models
