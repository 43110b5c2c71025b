#pragma once
#include <filesystem>
#include <optional>

namespace strata {

// The time of how many processors the control groups of this process allow it, as a container's limit does: the least
// quota of its group and of those above it, of version 1 (cpu.cfs_quota_us) and 2 (cpu.max); nullopt: there is none.
// `root`: as of control_groups().
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");
// The whole threads that a quota has the time for, at least one.
int threads_within(double quota);
// So many cores, as far as a quota has the time for them.
int cores_within(int cores, const std::optional<double>& quota);

}  // namespace strata
