#include "launcher/screen/value_text.h"

#include <fmt/format.h>

#include <cmath>

namespace strata::launcher {

std::string value_text(double value, int digits) {
  constexpr double kLong = 1e9;
  return std::abs(value) < kLong ? fmt::format("{:.{}f}", value, digits) : fmt::format("{:.3e}", value);
}

}  // namespace strata::launcher
