#pragma once
#include <filesystem>
#include <ostream>
#include <span>

namespace strata::launcher {

// `strata doctor`: what this machine offers and what to fix, one line each ("ok", "note" or "fix"), into `out`; of each
// folder (the current one if there are none), how the nvme tier would be read and written there. Returns the exit
// code: 1 if training cannot work at all, or a GPU that is there or a folder cannot be used.
int doctor(std::ostream& out, std::span<const std::filesystem::path> folders);

}  // namespace strata::launcher
