#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace strata::runtime {

// The lowest memory limit, in bytes, of this process's control group and its ancestors (cgroup v1 and v2); nullopt if
// none has a limit. `root` is as for control_groups().
std::optional<std::uint64_t> control_group_limit(const std::filesystem::path& root = "/");

// Bytes that this process can still allocate: what the system has available, within what its control group leaves.
std::uint64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace strata::runtime
