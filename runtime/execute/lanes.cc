#include "runtime/execute/lanes.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/index.h"
#include "runtime/plan/peers.h"

namespace strata::runtime {

using device::Lane;

Queues::Queues(const StepPlan& plan, comm::World& world, int threads) {
  std::array<bool, kLanes> used{};
  for (const LaneId lane : {LaneId::compute, LaneId::gather, LaneId::reduce})
    used[static_cast<std::size_t>(lane)] = true;
  used[static_cast<std::size_t>(LaneId::exchange)] = plan.mesh().tensor > 1;
  if (plan.mesh().stages > 1)  // every rank opens the communicators
    for (const LaneId lane : {LaneId::stage_forward, LaneId::stage_backward})
      used[static_cast<std::size_t>(lane)] = true;
  for (const Task& task : plan.tasks) used[static_cast<std::size_t>(task.lane)] = task.lane != LaneId::host;
  lanes.resize(kLanes);
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (!used[i]) continue;
    const auto lane = static_cast<LaneId>(i);
    const bool computes = lane == LaneId::compute || lane == LaneId::exchange || lane == LaneId::host_compute;
    lanes[i] = std::make_unique<Lane>(std::string(kLaneNames[i]), computes ? threads : 1, world.rank(),
                                      world.abort_token(), on_host(lane) ? device::Device{} : plan.device);
  }
  const comm::Group all = comm::all_ranks(world.rank(), world.size());
  const auto over = [&](LaneId lane, Peers peers) {
    return open(lane, plan.ranks() > 1 ? group_of(plan, peers, world.rank()) : all, world);
  };
  gather = open(LaneId::gather, all, world);
  parameters_ = over(LaneId::gather, Peers::parameters);
  updates_ = over(LaneId::gather, Peers::updates);
  gradients_ = over(LaneId::reduce, Peers::gradients);
  sums_ = over(LaneId::reduce, Peers::sums);
  node_ = over(LaneId::reduce, Peers::node);
  all_ = over(LaneId::reduce, Peers::all);
  tensor_ = plan.mesh().tensor > 1 ? over(LaneId::exchange, Peers::tensor) : gather;
  const bool staged = plan.mesh().stages > 1;
  stage_forward_ = staged ? over(LaneId::stage_forward, Peers::stages) : gather;
  stage_backward_ = staged ? over(LaneId::stage_backward, Peers::stages) : gather;
}

comm::Communicator* Queues::open(LaneId lane, const comm::Group& group, comm::World& world) {
  for (const Opened& opened : opened_)
    if (opened.lane == lane && opened.group == group) return opened.communicator.get();
  opened_.push_back({lane, group, world.open(of(lane), group)});
  return opened_.back().communicator.get();
}

void Queues::synchronize() const {
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (lanes[lane] && static_cast<LaneId>(lane) != LaneId::checkpoint) lanes[lane]->synchronize();
}

comm::CommBytes Queues::sent() const {
  comm::CommBytes sum;
  for (const Opened& opened : opened_) sum += opened.communicator->sent();
  return sum;
}

namespace {

std::array<bool, kLanes> lanes_that_continue(const StepPlan& plan) {
  std::array<bool, kLanes> continues{};
  std::array<int, kLanes> last;
  last.fill(-1);
  std::vector<int> before(plan.tasks.size()), awaited;
  std::vector<bool> reached(plan.tasks.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    before[t] = std::exchange(last[index(task.lane)], static_cast<int>(t));
    if (task.boundary && task.when == When::always) awaited.insert(awaited.end(), task.waits.begin(), task.waits.end());
  }
  while (!awaited.empty()) {
    const int t = awaited.back();
    awaited.pop_back();
    if (t < 0 || reached[index(t)]) continue;
    reached[index(t)] = true;
    awaited.push_back(before[index(t)]);
    for (const int wait : plan.tasks[index(t)].waits)
      if (wait < t) awaited.push_back(wait);
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) continues[lane] = last[lane] >= 0 && !reached[index(last[lane])];
  for (const Task& task : plan.tasks)
    for (const int wait : task.waits)
      if (on_host(plan.tasks[index(wait)].lane)) continues[index(task.lane)] = false;
  return continues;
}

}  // namespace

LaneBoundaries lane_boundaries(const StepPlan& plan) {
  LaneBoundaries boundaries{.continues = lanes_that_continue(plan)};
  for (const Task& task : plan.tasks) {
    if (task.kind == TaskKind::host_write) break;
    boundaries.begins_early[index(task.lane)] = true;
  }
  return boundaries;
}

bool StepGraph::possible(const StepPlan& plan) {
  if (!device::Graph::possible(plan.device)) return false;
  const auto of_device = [](const Task& task) { return task.lane != LaneId::host && !on_host(task.lane); };
  const auto first = std::find_if(plan.tasks.begin(), plan.tasks.end(), of_device);
  const auto last = std::find_if(plan.tasks.rbegin(), plan.tasks.rend(), of_device).base();
  // A run that generates cannot be recorded, because the number of rows and their position differ from call to call.
  if (std::any_of(first, last, [](const Task& task) { return task.buffer(Role::scores) >= 0; })) return false;
  return std::all_of(first, last, of_device) && std::all_of(plan.tasks.begin(), plan.tasks.end(), [&](const Task& t) {
           return of_device(t) ? t.when == When::always : t.lane == LaneId::host || t.when == When::checkpoint;
         });
}

StepGraph::StepGraph(const StepPlan& plan, const Lanes& lanes)
    : first_(*lanes[static_cast<std::size_t>(LaneId::compute)]), begun_(plan.device, false) {
  for (const auto& lane : lanes) {
    if (!lane || lane.get() == &first_ || lane->device().kind == device::Kind::cpu) continue;
    others_.push_back(lane.get());
    ended_.emplace_back(plan.device, false);
  }
}

bool StepGraph::record(const std::function<void()>& issue) {
  if (!refusal_.empty()) return false;
  try {
    graph_.emplace(first_, [&] {
      first_.record(begun_);
      for (device::Lane* lane : others_) lane->wait(begun_);
      issue();
      for (std::size_t i = 0; i < others_.size(); ++i) {
        others_[i]->record(ended_[i]);
        first_.wait(ended_[i]);
      }
    });
  } catch (const Error& refused) {
    refusal_ = refused.what();
  }
  return recorded();
}

void StepGraph::launch() {
  graph_->launch(first_);
}

}  // namespace strata::runtime
