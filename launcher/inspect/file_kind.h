#pragma once
#include <filesystem>
#include <string>

namespace strata::launcher {

// What a file is that people have beside token files and weights, and what to do with it: the rest of a sentence that
// begins with its path. Told by name and first bytes; empty: none of those known. Throws Error if it cannot be read.
std::string other_kind_of(const std::filesystem::path& path);

}  // namespace strata::launcher
