#include "base/counted.h"

#include <fmt/format.h>

namespace strata {

std::string counted(std::uint64_t n, std::string_view one, std::string_view many) {
  if (n != 1 && many.empty()) return fmt::format("{} {}s", n, one);
  return fmt::format("{} {}", n, for_count(n, one, many));
}

}  // namespace strata
