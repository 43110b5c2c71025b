#pragma once
#include <filesystem>

namespace strata {

// The path of this program's file, for starting it again. It is right even if another build has replaced the file.
std::filesystem::path own_program();

}  // namespace strata
