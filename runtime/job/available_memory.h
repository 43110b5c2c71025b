#pragma once
#include <cstdint>
#include <optional>

namespace strata::runtime {

// The least memory limit of this process's control group and of those above it (version 2), or of version 1's memory
// group, in bytes; nullopt if there is none.
std::optional<std::uint64_t> control_group_limit();

// Bytes that this process can still take: what the system has available, and what its control group leaves.
std::uint64_t available_memory();

}  // namespace strata::runtime
