#pragma once
#include <filesystem>
#include <string_view>
#include <vector>

namespace strata {

// A control group that bounds this process, as a container's limits do: its folder, and whether it is of version 2.
struct ControlGroup {
  std::filesystem::path folder;
  bool unified;
};
// This process's group and those above it, as far as they are mounted, of the controller ("cpu", "memory"), in versions
// 1 and 2. /proc/self and the groups are looked for below `root`, which is another folder in tests.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace strata
