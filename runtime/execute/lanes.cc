#include "runtime/execute/lanes.h"

#include <array>
#include <string>

namespace strata::runtime {

using device::Lane;

Queues::Queues(const StepPlan& plan, comm::World& world, int threads) {
  std::array<bool, kLanes> used{};
  for (const LaneId lane : {LaneId::compute, LaneId::gather, LaneId::reduce})
    used[static_cast<std::size_t>(lane)] = true;
  for (const Task& task : plan.tasks) used[static_cast<std::size_t>(task.lane)] = task.lane != LaneId::host;
  lanes.resize(kLanes);
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (!used[i]) continue;
    const auto lane = static_cast<LaneId>(i);
    const bool computes = lane == LaneId::compute || lane == LaneId::host_compute;
    lanes[i] = std::make_unique<Lane>(std::string(kLaneNames[i]), computes ? threads : 1, world.rank(),
                                      world.abort_token(), on_host(lane) ? device::Device{} : plan.device);
  }
  gather = world.open(of(LaneId::gather));
  reduce = world.open(of(LaneId::reduce));
}

void Queues::settle() const {
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (lanes[lane] && static_cast<LaneId>(lane) != LaneId::checkpoint) lanes[lane]->synchronize();
}

comm::CommBytes Queues::sent() const {
  comm::CommBytes sum = gather->sent();
  const comm::CommBytes other = reduce->sent();
  sum.all_gather += other.all_gather;
  sum.all_to_all += other.all_to_all;
  sum.broadcast += other.broadcast;
  sum.consensus += other.consensus;
  return sum;
}

}  // namespace strata::runtime
