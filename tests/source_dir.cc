#include "tests/source_dir.h"

namespace strata::tests {

std::filesystem::path source_dir() {
  return STRATA_SOURCE_DIR;
}

}  // namespace strata::tests
