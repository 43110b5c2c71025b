#pragma once
#include <filesystem>
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

}  // namespace strata
