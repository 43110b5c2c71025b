#include "runtime/simulator.h"

#include <algorithm>

namespace strata::runtime {

std::vector<Span> simulate(const StepPlan& plan, const MachineProfile& machine) {
  std::vector<Span> spans(plan.tasks.size());
  std::array<std::int64_t, kLanes> free{};
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    std::int64_t& lane = free[static_cast<std::size_t>(task.lane)];
    std::int64_t begin = lane;
    for (const int wait : task.waits) begin = std::max(begin, spans[static_cast<std::size_t>(wait)].end);
    const double seconds = machine.task_overhead_s +
                           std::max({task.cost.flops / machine.flops_per_s, task.cost.bytes / machine.bytes_per_s,
                                     task.cost.sent_bytes / machine.link_bytes_per_s});
    spans[t] = {begin, begin + static_cast<std::int64_t>(seconds * 1e9)};
    lane = spans[t].end;
  }
  return spans;
}

std::array<double, kLanes> exposed_ms(const StepPlan& plan, std::span<const Span> spans) {
  std::array<double, kLanes> exposed{};
  std::int64_t free = -1;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    if (task.lane != LaneId::compute) continue;
    if (free >= 0 && spans[t].begin > free) {
      int last = -1;
      for (const int wait : task.waits)
        if (last < 0 || spans[static_cast<std::size_t>(wait)].end > spans[static_cast<std::size_t>(last)].end)
          last = wait;
      if (last >= 0)
        exposed[static_cast<std::size_t>(plan.tasks[static_cast<std::size_t>(last)].lane)] +=
            static_cast<double>(spans[t].begin - free) / 1e6;
    }
    free = spans[t].end;
  }
  return exposed;
}

}  // namespace strata::runtime
