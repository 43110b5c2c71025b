#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace strata::runtime {

// The least memory limit of this process's control group and of those above it, of version 1 and 2, in bytes; nullopt
// if there is none. `root`: as of control_groups().
std::optional<std::uint64_t> control_group_limit(const std::filesystem::path& root = "/");

// Bytes that this process can still take: what the system has available, and what its control group leaves.
std::uint64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace strata::runtime
