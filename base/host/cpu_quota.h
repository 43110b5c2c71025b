#pragma once
#include <filesystem>
#include <optional>

namespace strata {

// The processor time that this process's control groups allow, in processors: the lowest quota of its group and those
// above it, in version 1 (cpu.cfs_quota_us) and 2 (cpu.max). nullopt if there is no quota. `root`: see
// control_groups().
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");
// The number of threads that a quota can keep busy, at least one.
int threads_within(double quota);
// The number of cores, limited by the quota.
int cores_within(int cores, const std::optional<double>& quota);

}  // namespace strata
