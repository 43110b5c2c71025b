#pragma once
#include <filesystem>

namespace strata::tests {

// The repository from which the tests were built. Only one object file has this path on its compile line, so that the
// compiler's cache serves all others to every clone.
std::filesystem::path source_dir();

}  // namespace strata::tests
