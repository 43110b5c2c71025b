#include "base/quantity.h"

#include <fmt/format.h>

#include <cmath>

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

std::string duration_text(double seconds) {
  const auto s = std::lround(seconds);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

std::string grouped(std::uint64_t count) {
  std::string text = fmt::format("{}", count);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

}  // namespace strata
