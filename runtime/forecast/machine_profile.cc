#include <algorithm>
#include <numeric>

#include "runtime/forecast/simulator.h"

namespace strata::runtime {

double sum_of(const BoundSeconds& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

MachineProfile nominal_profile(const StepPlan& plan) {
  MachineProfile m;
  if (plan.device.kind == device::Kind::cpu) {
    if (plan.dtype == device::DType::bf16) m.flops_per_s *= 3;
    return m;
  }
  m.flops_per_s = 4e14;
  m.attention_flops_per_s = 2e14;
  for (double* memory :
       {&m.bytes_per_s, &m.loss_bytes_per_s, &m.update_bytes_per_s, &m.sum_bytes_per_s, &m.norm_bytes_per_s})
    *memory = 2e12;
  m.host_bytes_per_s = 4e10;
  m.all_gather_bytes_per_s = m.all_to_all_bytes_per_s = 1e11;
  m.read_bytes_per_s = m.write_bytes_per_s = 5e9;
  m.task_overhead_s = 5e-6;
  return m;
}

BoundSeconds seconds_of(const Task& task, const MachineProfile& m) {
  const Cost& c = task.cost;
  BoundSeconds s{};
  const auto add = [&](Bound bound, double amount, double per_s) {
    s[static_cast<std::size_t>(bound)] += amount / per_s;
  };
  if (task.lane != LaneId::host) add(Bound::waking, m.task_overhead_s, 1);
  add(Bound::products, c.flops, m.flops_per_s);
  add(Bound::attention, c.attention_flops, m.attention_flops_per_s);
  add(Bound::host_link, c.host_bytes, m.host_bytes_per_s);
  add(Bound::disk, c.read_bytes, m.read_bytes_per_s);
  add(Bound::disk, c.written_bytes, m.write_bytes_per_s);
  if (c.read_bytes > 0) add(Bound::disk, m.read_latency_s, 1);
  if (c.written_bytes > 0) add(Bound::disk, m.write_latency_s, 1);
  const TaskTraits& traits = traits_of(task.kind);
  const auto exchange = [&](double bytes_per_s) {
    if (m.network_bytes_per_s == 0 || c.between_bytes == 0) return add(Bound::communication, c.sent_bytes, bytes_per_s);
    // The two overlap: a piece from another node is passed on within the node while the next one arrives.
    const double inside = (c.sent_bytes - c.between_bytes) / bytes_per_s;
    const double between = c.between_bytes / m.network_bytes_per_s + m.network_latency_s;
    add(Bound::communication, std::max(inside, between), 1);
  };
  if (traits.collective == Collective::all_gather) exchange(m.all_gather_bytes_per_s);
  if (traits.collective == Collective::all_to_all) exchange(m.all_to_all_bytes_per_s);
  if (sends_message(task.kind)) exchange(m.all_gather_bytes_per_s);
  if (traits.collective == Collective::exchange && c.between_bytes > 0)
    add(Bound::communication, m.network_latency_s, 1);
  switch (traits.traffic) {
    case Traffic::optimizer:
      add(Bound::optimizer, c.bytes,
          task.lane == LaneId::host_compute && m.host_update_bytes_per_s > 0 ? m.host_update_bytes_per_s
                                                                             : m.update_bytes_per_s);
      break;
    case Traffic::loss:
      add(Bound::memory, c.bytes, m.loss_bytes_per_s);
      break;
    case Traffic::norm:
      add(Bound::memory, c.bytes, m.norm_bytes_per_s);
      break;
    case Traffic::sums:
      add(Bound::memory, c.bytes, m.sum_bytes_per_s);
      break;
    case Traffic::blocks:
      add(Bound::memory, c.bytes, m.bytes_per_s);
  }
  return s;
}

}  // namespace strata::runtime
