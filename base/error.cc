#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace strata {

Exit exit_code(const std::exception& exception) {
  const auto* error = dynamic_cast<const Error*>(&exception);
  return error ? error->code() : Exit::failed;
}

void invariant_failed(const char* file, int line, const char* expression, const std::string& values) {
  std::fprintf(stderr, "strata: invariant broken at %s:%d: %s (%s)\n", file, line, expression, values.c_str());
  std::abort();
}

}  // namespace strata
