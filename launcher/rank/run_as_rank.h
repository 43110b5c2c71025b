#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "comm/communicator.h"

namespace strata::launcher {

// Connects this process to the other ranks as the recipe (read for its comm.* keys alone) says, calls run(world) and
// returns the exit code. What run throws ends all ranks: an AgreedError is printed by rank 0, anything else by the rank
// that failed first.
int run_as_rank(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                const std::function<void(comm::World&)>& run);

}  // namespace strata::launcher
