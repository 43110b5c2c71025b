#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "device/memory.h"
#include "runtime/job/seat.h"
#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The device that a rank uses, and the bytes that it may use in each tier. `together` limits device and host, which are
// one memory on the CPU.
struct Capacity {
  std::array<std::size_t, kTiers> tier;
  std::size_t together;
  device::Device device = {};

  std::size_t operator[](Tier t) const { return tier[static_cast<std::size_t>(t)]; }
};

// Returns memory.* if the recipe sets it. Otherwise the host has what the system has available now, divided by
// `ranks_on_node`, and a GPU has what is free on it, divided by the ranks that share it, less 1 GiB or 1/32 for its
// libraries. Throws Error{usage} if only memory.device could say it.
Capacity capacity_of(const Recipe::Memory& memory, int ranks_on_node, const Seat& seat = {});

// As capacity_of(), but for a run on this machine: limited to the memory that there is, whatever the recipe says.
Capacity capacity_here(const Recipe::Memory& memory, int ranks_on_node, const Seat& seat);

bool fits(const StepPlan& plan, const Capacity& capacity);

// The lowest memory limit, in bytes, of this process's control group and its ancestors (cgroup v1 and v2); nullopt if
// none has a limit. `root` is as for control_groups().
std::optional<std::uint64_t> control_group_limit(const std::filesystem::path& root = "/");

// Bytes that this process can still allocate: what the system has available, within what its control group leaves.
std::uint64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace strata::runtime
