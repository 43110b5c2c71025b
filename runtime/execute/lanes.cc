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
  const Mesh& mesh = plan.mesh();
  const int all = mesh.data();
  const int held = plan.placement.parameters.pieces(mesh), updated = plan.placement.optimizer.pieces(mesh);
  const auto over = [&](LaneId lane, int within, int pieces) {
    const comm::Group group = mesh.group(world.rank(), within, pieces);
    return open(lane, group.size() > 1 ? group : comm::all_ranks(world.rank(), world.size()), world);
  };
  gather = open(LaneId::gather, comm::all_ranks(world.rank(), world.size()), world);
  parameters_ = over(LaneId::gather, held, 1);
  updates_ = plan.spreads() ? over(LaneId::gather, updated, held) : gather;
  gradients_ = over(LaneId::reduce, all, 1);
  sums_ = over(LaneId::reduce, all, updated);
}

comm::Communicator* Queues::open(LaneId lane, const comm::Group& group, comm::World& world) {
  for (const Opened& opened : opened_)
    if (opened.lane == lane && opened.group == group) return opened.communicator.get();
  opened_.push_back({lane, group, world.open(of(lane), group)});
  return opened_.back().communicator.get();
}

void Queues::settle() const {
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (lanes[lane] && static_cast<LaneId>(lane) != LaneId::checkpoint) lanes[lane]->synchronize();
}

comm::CommBytes Queues::sent() const {
  comm::CommBytes sum;
  for (const Opened& opened : opened_) {
    const comm::CommBytes other = opened.communicator->sent();
    sum.all_gather += other.all_gather;
    sum.all_to_all += other.all_to_all;
    sum.broadcast += other.broadcast;
    sum.consensus += other.consensus;
  }
  return sum;
}

}  // namespace strata::runtime
