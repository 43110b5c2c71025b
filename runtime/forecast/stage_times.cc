#include "runtime/forecast/stage_times.h"

#include <algorithm>
#include <numeric>

namespace strata::runtime {

StageTimes::StageTimes(std::size_t units) {
  before_.fill(std::vector<double>(units + 1));
}

void StageTimes::add(const StepPlan& plan, const MachineProfile& machine, int micro_batches) {
  std::array<std::vector<double>, kLanes> own;
  own.fill(std::vector<double>(before_[0].size()));
  for (const Task& task : plan.tasks) {
    // The host writes and reads for all units, and stages wait in messages for each other.
    if (task.unit < 0 || task.lane == LaneId::host || task.kind == TaskKind::send || task.kind == TaskKind::receive)
      continue;
    const BoundSeconds seconds = seconds_of(task, machine);
    const double times = task.micro_batch < 0 ? 1 : static_cast<double>(micro_batches) / plan.accumulation;
    own[static_cast<std::size_t>(task.lane)][static_cast<std::size_t>(task.unit) + 1] +=
        times * std::accumulate(seconds.begin(), seconds.end(), 0.0);
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    double sum = 0;
    for (std::size_t unit = 0; unit < own[lane].size(); ++unit) before_[lane][unit] += sum += own[lane][unit];
  }
}

double StageTimes::of(const UnitRange& units) const {
  double most = 0;
  for (const std::vector<double>& lane : before_)
    most = std::max(most, lane[static_cast<std::size_t>(units.last) + 1] - lane[static_cast<std::size_t>(units.first)]);
  return most;
}

}  // namespace strata::runtime
