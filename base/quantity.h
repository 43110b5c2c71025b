#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace strata {

// For people: "1.50 GiB", "10.0 MiB", "1.5 KiB", "0".
std::string bytes_text(std::size_t bytes);
// For people: "7.62B", "124.4M", "12.3K".
std::string count_text(std::size_t count);
// For people: "34,409".
std::string grouped(std::uint64_t count);
// For people: "45s", "1m32s", "3h05m".
std::string duration_text(double seconds);

}  // namespace strata
