#pragma once
#include <filesystem>

namespace strata {

// The path of this program's file, to start it again: also after another build has taken its place there.
std::filesystem::path own_program();

}  // namespace strata
