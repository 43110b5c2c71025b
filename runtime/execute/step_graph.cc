#include "runtime/execute/step_graph.h"

#include <algorithm>

#include "base/error.h"

namespace strata::runtime {

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
