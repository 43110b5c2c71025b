#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

// Human-readable: "6.21 TiB", "1.50 GiB", "10.0 MiB", "1.5 KiB", "0".
std::string bytes_text(std::size_t bytes);
// Human-readable: "7.62B", "124.4M", "12.3K".
std::string count_text(std::size_t count);
// Human-readable: "34,409".
std::string grouped(std::uint64_t count);
// Human-readable: "45s", "1m32s", "3h05m", "12d04h".
std::string duration_text(double seconds);
// Human-readable, for steps and other short times: "301.2 ms", "45.3 s", "49m16s".
std::string step_time_text(double milliseconds);
// Human-readable: "6800 tokens/s", "4.2 tokens/s", "820 tokens/hour", "35 tokens/day".
std::string tokens_rate_text(double per_second);
// Human-readable, for a loss, a norm or a metric: "3.2958", with `digits` digits after the point. Values from 1e9 on
// look like "2.354e+48", because those of a diverged run have dozens of digits.
std::string value_text(double value, int digits);

// "1 file", "2 files", "0 files". `many` is the plural if it is not `one` with an s.
std::string counted(std::uint64_t n, std::string_view one, std::string_view many = {});

// The singular or the plural without the number, for sentences in which the number is elsewhere or is formatted
// differently.
template <typename Number>
constexpr std::string_view for_count(Number n, std::string_view one, std::string_view many) {
  return n == 1 ? one : many;
}

}  // namespace strata
