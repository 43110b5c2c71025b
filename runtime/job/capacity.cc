#include "runtime/job/capacity.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "comm/staged.h"
#include "runtime/job/available_memory.h"

namespace strata::runtime {
namespace {

// GPU memory left free outside the plan (or 1/32 of the GPU's, if that is more): kernels that load at their first use,
// the workspaces of cuBLASLt and cuDNN, and the step's graph. kNcclPerPeer is for NCCL's buffers, per other GPU of the
// node: an all-to-all among eight takes 3.3 GiB (NVIDIA/nccl#1685). Both are estimates, so that no allocation fails in
// step 1.
constexpr std::size_t kReserve = std::size_t{1} << 30, kNcclPerPeer = std::size_t{1} << 29;
// The largest number of communicators that gather and reduce can need: zero.*_group may add one over a group each for
// parameters, updates and sums (Queues).
constexpr std::size_t kStagedCommunicators = 5;

}  // namespace

Capacity capacity_of(const Recipe::Memory& memory, int ranks_on_node, const Seat& seat) {
  constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  const std::size_t available = available_memory() / static_cast<std::size_t>(ranks_on_node);
  if (seat.device.kind != device::Kind::cpu) {
    const std::size_t there = memory.device ? *memory.device : device_memory(seat);
    if (there == 0) fail(Exit::usage, "there is no GPU here whose memory could be asked: set memory.device");
    const std::size_t peers = seat.sharing > 1 ? 0 : static_cast<std::size_t>(ranks_on_node - 1);
    const std::size_t reserve = memory.device ? 0 : std::max(kReserve, there / 32) + peers * kNcclPerPeer;
    const std::size_t staged = ranks_on_node > 1 ? kStagedCommunicators * comm::kStagedBytes : 0;
    return {
        {there - std::min(there, reserve), memory.host.value_or(available - std::min(available, staged)), kUnlimited},
        kUnlimited,
        seat.device};
  }
  const std::size_t device = memory.device.value_or(available), host = memory.host.value_or(available);
  const bool both = memory.device && memory.host;
  return {{device, host, std::numeric_limits<std::size_t>::max()}, both ? device + host : std::max(device, available)};
}

Capacity capacity_here(const Recipe::Memory& memory, int ranks_on_node, const Seat& seat) {
  Capacity capacity = capacity_of(memory, ranks_on_node, seat);
  Capacity there = capacity_of({}, ranks_on_node, seat);
  if (memory.device && seat.device.kind != device::Kind::cpu) there.tier[0] = device_memory(seat);
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    capacity.tier[tier] = std::min(capacity.tier[tier], there.tier[tier]);
  capacity.together = std::min(capacity.together, there.together);
  return capacity;
}

bool fits(const StepPlan& plan, const Capacity& capacity) {
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    if (plan.memory[tier].peak > capacity.tier[tier]) return false;
  return plan.memory[0].peak + plan.memory[1].peak <= capacity.together;
}

}  // namespace strata::runtime
