#include "base/quantity.h"

#include <fmt/format.h>

#include <cmath>

namespace strata {

std::string bytes_text(std::size_t bytes) {
  if (bytes == 0) return "0";
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < (1u << 20)) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  if (bytes < (1u << 30)) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  const double gib = static_cast<double>(bytes) / (1 << 30);
  return gib < 1024 ? fmt::format("{:.2f} GiB", gib) : fmt::format("{:.2f} TiB", gib / 1024);
}

std::string count_text(std::size_t count) {
  const auto x = static_cast<double>(count);
  if (count < 1'000) return fmt::format("{}", count);
  if (count < 1'000'000) return fmt::format("{:.1f}K", x / 1e3);
  return count < 1'000'000'000 ? fmt::format("{:.1f}M", x / 1e6) : fmt::format("{:.2f}B", x / 1e9);
}

std::string duration_text(double seconds) {
  const auto s = std::lround(seconds);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 4 * 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string step_time_text(double milliseconds) {
  if (milliseconds < 1e4) return fmt::format("{:.1f} ms", milliseconds);
  if (milliseconds < 1.2e5) return fmt::format("{:.1f} s", milliseconds / 1e3);
  return duration_text(milliseconds / 1e3);
}

std::string tokens_rate_text(double per_second) {
  if (!(per_second > 0)) return "0 tokens/s";
  if (per_second >= 10) return fmt::format("{:.0f} tokens/s", per_second);
  if (per_second >= 1) return fmt::format("{:.1f} tokens/s", per_second);
  if (per_second * 3600 >= 10) return fmt::format("{:.0f} tokens/hour", per_second * 3600);
  return fmt::format("{:.3g} tokens/day", per_second * 86400);
}

std::string grouped(std::uint64_t count) {
  std::string text = fmt::format("{}", count);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string value_text(double value, int digits) {
  constexpr double kLong = 1e9;
  return std::abs(value) < kLong ? fmt::format("{:.{}f}", value, digits) : fmt::format("{:.3e}", value);
}

std::string counted(std::uint64_t n, std::string_view one, std::string_view many) {
  if (n != 1 && many.empty()) return fmt::format("{} {}s", n, one);
  return fmt::format("{} {}", n, for_count(n, one, many));
}

}  // namespace strata
