#include "base/host/cpu_quota.h"

#include <algorithm>
#include <fstream>

#include "base/host/control_groups.h"

namespace strata {
namespace {

// The group's own quota in cores. Version 2 has one file, "QUOTA PERIOD", with "max" for no quota. Version 1 has two
// files, with -1 for no quota.
std::optional<double> quota_in(const ControlGroup& group) {
  double quota = 0, period = 0;
  if (group.unified) {
    std::ifstream file(group.folder / "cpu.max");
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    std::ifstream quota_file(group.folder / "cpu.cfs_quota_us"), period_file(group.folder / "cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

}  // namespace

std::optional<double> cpu_quota(const std::filesystem::path& root) {
  std::optional<double> least;
  for (const ControlGroup& group : control_groups("cpu", root))
    if (const auto quota = quota_in(group)) least = std::min(least.value_or(*quota), *quota);
  return least;
}

int threads_within(double quota) {
  constexpr double kRounding = 0.01;  // 199999 of 100000 us are two cores
  return static_cast<int>(std::clamp(quota + kRounding, 1.0, 1e6));
}

int cores_within(int cores, const std::optional<double>& quota) {
  return quota ? std::min(cores, threads_within(*quota)) : cores;
}

}  // namespace strata
