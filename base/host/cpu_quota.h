#pragma once
#include <filesystem>
#include <optional>

namespace strata {

// The time of how many processors the control groups of this process allow it, as a container's limit does: the least
// quota of its group and of those above it, of version 1 (cpu.cfs_quota_us) and 2 (cpu.max); nullopt: there is none.
// /proc/self and the groups are looked for below `root`, which is another folder in tests.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace strata
