#include "base/random_name.h"

#include <fmt/format.h>

#include <random>

namespace strata {

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace strata
