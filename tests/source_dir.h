#pragma once
#include <filesystem>

namespace strata::tests {

// The repository that the tests were built from. A function of one object, so that the path is on no other object's
// compile line: the compiler's cache serves them to every clone.
std::filesystem::path source_dir();

}  // namespace strata::tests
