#pragma once
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace strata {

// A control group that bounds this process, as a container's limits do: its folder and its version.
struct ControlGroup {
  std::filesystem::path folder;
  bool unified;
};
// This process's group and those above it, as far as they are mounted, for the controller ("cpu", "memory") in versions
// 1 and 2. Tests give another `root`, below which /proc/self and the groups are looked up.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root = "/");

// The processor time that this process's control groups allow, in processors: the lowest quota of its group and those
// above it, in version 1 (cpu.cfs_quota_us) and 2 (cpu.max). nullopt if there is no quota. `root`: see
// control_groups().
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");
// The number of threads that a quota can keep busy, at least one.
int threads_within(double quota);
// The number of cores, limited by the quota.
int cores_within(int cores, const std::optional<double>& quota);

}  // namespace strata
