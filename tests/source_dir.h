#pragma once
#include <filesystem>

namespace strata::tests {

// The repository from which the tests were built. Only one object file has this path on its compile line, so that other
// clones can reuse all others from the compiler's cache.
std::filesystem::path source_dir();

}  // namespace strata::tests
