#pragma once
#include <fmt/format.h>

#include <random>
#include <string>

namespace strata {

// 32 random hexadecimal digits, unguessable and unique, for the names of runs and files and for one-time secrets.
inline std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace strata
