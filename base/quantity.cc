#include "base/quantity.h"

#include <fmt/format.h>

namespace strata {

std::string bytes_text(std::size_t bytes) {
  if (bytes == 0) return "0";
  if (bytes < (1u << 20)) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  if (bytes < (1u << 30)) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string count_text(std::size_t count) {
  const auto x = static_cast<double>(count);
  if (count < 1'000'000) return fmt::format("{:.1f}K", x / 1e3);
  return count < 1'000'000'000 ? fmt::format("{:.1f}M", x / 1e6) : fmt::format("{:.2f}B", x / 1e9);
}

}  // namespace strata
