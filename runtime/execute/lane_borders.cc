#include "runtime/execute/lane_borders.h"

#include <utility>
#include <vector>

#include "base/index.h"

namespace strata::runtime {
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
    if (task.border && task.when == When::always) awaited.insert(awaited.end(), task.waits.begin(), task.waits.end());
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

LaneBorders lane_borders(const StepPlan& plan) {
  LaneBorders borders{.continues = lanes_that_continue(plan)};
  for (const Task& task : plan.tasks) {
    if (task.kind == TaskKind::host_write) break;
    borders.begins_early[index(task.lane)] = true;
  }
  return borders;
}

}  // namespace strata::runtime
