#include "runtime/job/capacity.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/host/host.h"
#include "comm/staged.h"
#include "device/backend.h"
#include "device/cpu/isa.h"
#include "device/gpu.h"

namespace strata::runtime {

namespace {

// GPU memory left free outside the plan (or 1/32 of the GPU's, if that is more): kernels that load at their first use,
// the workspaces of cuBLASLt and cuDNN, and the step's graph. kNcclPerPeer is for NCCL's buffers, per other GPU of the
// node: an all-to-all among eight takes 3.3 GiB (NVIDIA/nccl#1685). Both are estimates, meant to keep allocations in
// step 1 from failing.
constexpr std::size_t kReserve = std::size_t{1} << 30, kNcclPerPeer = std::size_t{1} << 29;
// The largest number of communicators that gather and reduce can need: zero.*_group may add one each for parameters,
// updates and sums, over a group (Queues).
constexpr std::size_t kStagedCommunicators = 5;

}  // namespace

Capacity capacity_of(const Recipe::Memory& memory, int ranks_on_node, const RankDevice& rank_device) {
  constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  const std::size_t available = available_memory() / static_cast<std::size_t>(ranks_on_node);
  if (rank_device.device.kind != device::Kind::cpu) {
    const std::size_t there = memory.device ? *memory.device : device_memory(rank_device);
    if (there == 0) fail(Exit::usage, "there is no GPU here whose memory can be queried: set memory.device");
    const std::size_t peers = rank_device.sharing > 1 ? 0 : static_cast<std::size_t>(ranks_on_node - 1);
    const std::size_t reserve = memory.device ? 0 : std::max(kReserve, there / 32) + peers * kNcclPerPeer;
    const std::size_t staged = ranks_on_node > 1 ? kStagedCommunicators * comm::kStagedBytes : 0;
    return {
        {there - std::min(there, reserve), memory.host.value_or(available - std::min(available, staged)), kUnlimited},
        kUnlimited,
        rank_device.device};
  }
  const std::size_t device = memory.device.value_or(available), host = memory.host.value_or(available);
  const bool both = memory.device && memory.host;
  return {{device, host, std::numeric_limits<std::size_t>::max()}, both ? device + host : std::max(device, available)};
}

Capacity capacity_here(const Recipe::Memory& memory, int ranks_on_node, const RankDevice& rank_device) {
  Capacity capacity = capacity_of(memory, ranks_on_node, rank_device);
  Capacity there = capacity_of({}, ranks_on_node, rank_device);
  if (memory.device && rank_device.device.kind != device::Kind::cpu) there.tier[0] = device_memory(rank_device);
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    capacity.tier[tier] = std::min(capacity.tier[tier], there.tier[tier]);
  capacity.together = std::min(capacity.together, there.together);
  return capacity;
}

std::size_t bytes_above(const StepPlan& plan, const Capacity& capacity) {
  std::size_t most = 0;
  const auto count = [&](std::size_t needed, std::size_t there) {
    if (needed > there) most = std::max(most, needed - there);
  };
  for (std::size_t tier = 0; tier < kTiers; ++tier) count(plan.memory[tier].peak, capacity.tier[tier]);
  count(plan.memory[0].peak + plan.memory[1].peak, capacity.together);
  return most;
}

bool fits(const StepPlan& plan, const Capacity& capacity) {
  return bytes_above(plan, capacity) == 0;
}

namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line) || line.empty() || line.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const std::uint64_t bytes = std::strtoull(line.c_str(), nullptr, 10);
  if (bytes >= std::uint64_t{1} << 60) return std::nullopt;  // cgroup v1 writes 2^63 for "none"
  return bytes;
}

struct Group {
  std::uint64_t limit, used;
};

// The part of a control group's use that the kernel can reclaim: file pages that were not used recently, in bytes.
std::uint64_t reclaimable(const fs::path& group) {
  std::ifstream stat(group / "memory.stat");
  std::string key;
  for (std::uint64_t bytes; stat >> key >> bytes;)
    if (key == "inactive_file" || key == "total_inactive_file") return bytes;
  return 0;
}

// The group that leaves the least memory, among this process's control group and its ancestors.
std::optional<Group> tightest_group(const fs::path& root) {
  std::optional<Group> least;
  for (const ControlGroup& group : control_groups("memory", root)) {
    const auto limit = number_in(group.folder / (group.unified ? "memory.max" : "memory.limit_in_bytes"));
    if (!limit) continue;
    const char* usage = group.unified ? "memory.current" : "memory.usage_in_bytes";
    const std::uint64_t counted = number_in(group.folder / usage).value_or(0);
    const std::uint64_t used = std::min(counted - std::min(counted, reclaimable(group.folder)), *limit);
    if (!least || *limit - used < least->limit - least->used) least = Group{*limit, used};
  }
  return least;
}

}  // namespace

std::optional<std::uint64_t> control_group_limit(const fs::path& root) {
  const auto group = tightest_group(root);
  return group ? std::optional(group->limit) : std::nullopt;
}

std::uint64_t available_memory(const fs::path& root) {
  std::uint64_t available = memory_info("MemAvailable", root).value_or(std::numeric_limits<std::uint64_t>::max());
  if (const auto group = tightest_group(root)) available = std::min(available, group->limit - group->used);
  return available;
}

RankDevice choose_rank_device(DeviceKind kind, int node_rank) {
  if (kind == DeviceKind::cpu) return {};
  device::Gpus found = device::find_gpus();
  if (!found.usable()) {
    if (kind == DeviceKind::automatic) return {};
    (void)device::backend(device::Kind::cuda);  // throws its own message if CUDA was not built
    fail(Exit::usage, "device.kind = cuda, but {}: see strata doctor, or set device.kind = cpu, which needs no GPU",
         found.problem.empty() ? "no GPU here can be used" : found.problem);
  }
  std::erase_if(found.gpus, [](const device::Gpu& gpu) { return !gpu.problem.empty(); });
  const device::Gpu& own = found.gpus[static_cast<std::size_t>(node_rank) % found.gpus.size()];
  return {own.device, own.uuid};
}

RankDevice planned_rank_device(DeviceKind kind) {
  if (kind != DeviceKind::cuda) return choose_rank_device(kind, 0);
  return {{device::Kind::cuda, 0}, {}};
}

std::string describe(const RankDevice& rank_device) {
  if (rank_device.device.kind == device::Kind::cpu) return device::cpu::describe();
  std::string name = "a GPU";
  for (const device::Gpu& gpu : device::find_gpus().gpus)
    if (gpu.device == rank_device.device) name = gpu.name;
  return fmt::format("{} (GPU {}{})", name, rank_device.device.ordinal,
                     rank_device.sharing > 1 ? fmt::format(", shared by {} ranks", rank_device.sharing) : "");
}

std::size_t device_memory(const RankDevice& rank_device) {
  for (device::Gpu& gpu : device::find_gpus().gpus) {
    if (gpu.device != rank_device.device) continue;
    device::probe_gpu(gpu);
    return (gpu.problem.empty() ? gpu.available : gpu.memory) / static_cast<std::size_t>(rank_device.sharing);
  }
  return 0;
}

}  // namespace strata::runtime
