#pragma once
#include <utility>
#include <vector>

#include "runtime/forecast/simulator.h"

namespace strata::runtime {

inline constexpr double kClock = 1e-6;  // spans are whole nanoseconds; a few hundred of them add up

// Speeds are one unit per second, so that costs are seconds, and there is no overhead.
inline MachineProfile unit_speeds(double cores) {
  MachineProfile m;
  for (double* speed :
       {&m.flops_per_s, &m.attention_flops_per_s, &m.bytes_per_s, &m.loss_bytes_per_s, &m.update_bytes_per_s,
        &m.sum_bytes_per_s, &m.norm_bytes_per_s, &m.host_bytes_per_s, &m.all_gather_bytes_per_s,
        &m.all_to_all_bytes_per_s, &m.read_bytes_per_s, &m.write_bytes_per_s})
    *speed = 1;
  m.task_overhead_s = m.read_latency_s = m.write_latency_s = 0;
  m.cores = cores;
  m.memory_bytes_per_s = 1e9;  // never the limit
  return m;
}

inline Task task_in(LaneId lane, double seconds, std::vector<int> waits = {}) {
  Task task{};
  task.lane = lane;
  task.waits = std::move(waits);
  const auto is = [&](TaskKind kind, double Cost::*cost) {
    task.kind = kind;
    task.cost.*cost = seconds;
    return task;
  };
  switch (lane) {
    case LaneId::compute:
      return is(TaskKind::forward, &Cost::flops);
    case LaneId::gather:
      return is(TaskKind::gather, &Cost::sent_bytes);
    case LaneId::reduce:
      return is(TaskKind::norm, &Cost::bytes);
    case LaneId::host_compute:
      return is(TaskKind::update, &Cost::bytes);
    case LaneId::disk_read:
      return is(TaskKind::read, &Cost::read_bytes);
    case LaneId::disk_write:
      return is(TaskKind::write, &Cost::written_bytes);
    default:
      return is(lane == LaneId::upload ? TaskKind::upload : TaskKind::download, &Cost::host_bytes);
  }
}

inline StepPlan plan_of(std::vector<Task> tasks) {
  StepPlan plan{};
  plan.tasks = std::move(tasks);
  return plan;
}

}  // namespace strata::runtime
