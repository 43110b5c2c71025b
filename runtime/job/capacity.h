#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "device/device.h"
#include "device/memory.h"
#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The device of a rank, chosen by device.kind, and the number of ranks that share its GPU, known once the ranks have
// exchanged it.
struct RankDevice {
  device::Device device;
  std::string gpu;  // the GPU's UUID; empty on the CPU
  int sharing = 1;
};

// Returns the device of rank `node_rank` of this node; ranks take the node's GPUs in turn. `automatic` takes GPUs if
// any can be used, else the CPU. Throws Error{usage} if device.kind = cuda and no GPU can be used.
RankDevice choose_rank_device(DeviceKind kind, int node_rank);

// The device for planning without running: device.kind = cuda plans for a GPU even if this machine has none.
RankDevice planned_rank_device(DeviceKind kind);

// "AMD EPYC (AVX-512, ...)", "NVIDIA H200 (GPU 0, shared by 2 ranks)".
std::string describe(const RankDevice& rank_device);

// Bytes of the device that the rank may use: the free memory now, or the total if that cannot be queried, or 0 if it is
// unknown here. This call starts the GPU.
std::size_t device_memory(const RankDevice& rank_device);

// The device that a rank uses, and the bytes that it may use in each tier. `together` limits device and host, which are
// one memory on the CPU.
struct Capacity {
  std::array<std::size_t, kTiers> tier;
  std::size_t together;
  device::Device device = {};

  std::size_t operator[](Tier t) const { return tier[static_cast<std::size_t>(t)]; }
};

// Returns memory.* if the recipe sets it. Otherwise the host's capacity is the system's available memory divided by
// `ranks_on_node`, and a GPU's is its free memory, divided by the ranks that share it, less 1 GiB or 1/32 for its
// libraries. Throws Error{usage} if the memory is unknown and memory.device is not set.
Capacity capacity_of(const Recipe::Memory& memory, int ranks_on_node, const RankDevice& rank_device = {});

// Like capacity_of(), but for a run on this machine: limited to the machine's memory, even if the recipe sets more.
Capacity capacity_here(const Recipe::Memory& memory, int ranks_on_node, const RankDevice& rank_device);

bool fits(const StepPlan& plan, const Capacity& capacity);
// The bytes that the plan needs above the capacity, where it lacks the most; 0 if it fits.
std::size_t bytes_above(const StepPlan& plan, const Capacity& capacity);

// The lowest memory limit, in bytes, of this process's control group and its ancestors (cgroup v1 and v2); nullopt if
// none has a limit. `root` is as for control_groups().
std::optional<std::uint64_t> control_group_limit(const std::filesystem::path& root = "/");

// Bytes that this process can still allocate: the system's available memory, within the limits of its control group.
std::uint64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace strata::runtime
