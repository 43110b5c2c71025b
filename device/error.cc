#include "device/error.h"

#include <cstdio>
#include <cstdlib>

namespace strata {

void invariant_failed(const char* file, int line, const char* expression, const std::string& values) {
  std::fprintf(stderr, "strata: invariant broken at %s:%d: %s (%s)\n", file, line, expression, values.c_str());
  std::abort();
}

}  // namespace strata
