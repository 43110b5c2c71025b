#include "runtime/forecast/simulator.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace strata::runtime {
namespace {

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

// What a running task takes of what lanes share: parts of the whole, each more than 1 where several ask for it.
struct Demand {
  double cores = 0, memory = 0, disk = 0;

  Demand& operator+=(const Demand& d) {
    cores += d.cores;
    memory += d.memory;
    disk += d.disk;
    return *this;
  }
};

Demand demand_of(const Task& task, const MachineProfile& m, double seconds) {
  const bool disk = task.lane == LaneId::disk_read || task.lane == LaneId::disk_write;
  Demand d{.disk = disk ? 1.0 : 0.0};
  if (m.cores == 0 || disk) return d;  // a drive writes to memory by itself, and its part of the cores is added once
  const bool whole_team = task.lane == LaneId::compute || task.lane == LaneId::host_compute;
  d.cores = whole_team ? 1 : 1 / m.cores;
  // Products and what blocks do run from the caches for the most part.
  const bool streams = task.kind == TaskKind::update || !whole_team;
  const double bytes = task.cost.bytes + 2 * (task.cost.host_bytes + task.cost.sent_bytes);
  if (streams && seconds > 0) d.memory = std::min(1.0, bytes / seconds / m.memory_bytes_per_s);
  return d;
}

// A task under way: the seconds that it would still take alone.
struct Running {
  int task = -1;
  double left = 0;
  Demand demand;

  double speed(const Demand& all, const MachineProfile& m) const {
    if (demand.disk > 0) {
      const double ways = all.disk > 1 ? m.disk_both_ways / all.disk : 1;
      return ways * (1 - (1 - m.disk_beside_products) * std::min(1.0, all.cores));
    }
    const double cores = all.cores + (all.disk > 0 && m.cores > 0 ? m.disk_core_share : 0);
    double speed = 1;
    if (demand.cores > 0) speed = std::min(speed, 1 / cores);
    if (demand.memory > 0) speed = std::min(speed, 1 / all.memory);
    return speed;
  }
};

}  // namespace

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
  add(Bound::waking, m.task_overhead_s, 1);
  add(Bound::products, c.flops, m.flops_per_s);
  add(Bound::attention, c.attention_flops, m.attention_flops_per_s);
  add(Bound::host_link, c.host_bytes, m.host_bytes_per_s);
  add(Bound::disk, c.read_bytes, m.read_bytes_per_s);
  add(Bound::disk, c.written_bytes, m.write_bytes_per_s);
  if (c.read_bytes > 0) add(Bound::disk, m.read_latency_s, 1);
  if (c.written_bytes > 0) add(Bound::disk, m.write_latency_s, 1);
  switch (task.kind) {
    case TaskKind::update:
      add(Bound::optimizer, c.bytes, m.update_bytes_per_s);
      break;
    case TaskKind::loss:
      add(Bound::memory, c.bytes, m.loss_bytes_per_s);
      break;
    case TaskKind::norm:
      add(Bound::memory, c.bytes, m.norm_bytes_per_s);
      break;
    case TaskKind::gather:
    case TaskKind::gather_sums:
      add(Bound::communication, c.sent_bytes, m.all_gather_bytes_per_s);
      break;
    case TaskKind::reduce:
      add(Bound::communication, c.sent_bytes, m.all_to_all_bytes_per_s);
      [[fallthrough]];
    case TaskKind::accumulate:
    case TaskKind::round:
    case TaskKind::combine:
      add(Bound::memory, c.bytes, m.sum_bytes_per_s);
      break;
    default:
      add(Bound::memory, c.bytes, m.bytes_per_s);
  }
  return s;
}

std::vector<Span> simulate(const StepPlan& plan, const MachineProfile& machine) {
  // Where some are late, after a step that leaves them.
  const std::size_t n = plan.tasks.size();
  const bool after_another =
      std::any_of(plan.tasks.begin(), plan.tasks.end(), [](const Task& task) { return task.late; });
  const std::size_t first = after_another ? n : 0, all_tasks = first + n;
  std::vector<Span> spans(all_tasks);
  std::vector<bool> done(all_tasks);
  std::array<std::vector<std::size_t>, kLanes> queues;
  std::size_t left = 0;  // of the step before, but for what is late
  for (std::size_t t = 0; t < all_tasks; ++t) {
    queues[static_cast<std::size_t>(plan.tasks[t % n].lane)].push_back(t);
    left += t < first && !plan.tasks[t].late ? 1 : 0;
  }
  const auto may_start = [&](std::size_t t) {
    const Task& task = plan.tasks[t % n];
    if (t >= first && (left > 0 || (task.late_wait >= 0 && !done[index(task.late_wait)]))) return false;
    const std::size_t step = t >= first ? first : 0;
    return std::all_of(task.waits.begin(), task.waits.end(), [&](int wait) { return done[step + index(wait)]; });
  };
  std::array<std::size_t, kLanes> next{};
  std::array<Running, kLanes> running;
  double now = 0;
  const auto nanoseconds = [&] { return static_cast<std::int64_t>(now * 1e9); };
  for (;;) {
    Demand all;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      Running& r = running[lane];
      if (r.task < 0 && next[lane] < queues[lane].size()) {
        const std::size_t t = queues[lane][next[lane]];
        const Task& task = plan.tasks[t % n];
        if (may_start(t)) {
          const double seconds = sum_of(seconds_of(task, machine));
          r = {static_cast<int>(t), seconds, demand_of(task, machine, seconds)};
          spans[t].begin = nanoseconds();
          ++next[lane];
        }
      }
      if (r.task >= 0) all += r.demand;
    }
    double step = std::numeric_limits<double>::infinity();
    for (const Running& r : running)
      if (r.task >= 0) step = std::min(step, r.left / r.speed(all, machine));
    if (step == std::numeric_limits<double>::infinity()) break;
    now += step;
    for (Running& r : running) {
      if (r.task < 0) continue;
      const double speed = r.speed(all, machine);
      r.left -= step * speed;
      if (r.left > 1e-12) continue;  // less than what the clock shows
      spans[index(r.task)].end = nanoseconds();
      done[index(r.task)] = true;
      left -= index(r.task) < first && !plan.tasks[index(r.task)].late ? 1 : 0;
      r.task = -1;
    }
  }
  std::int64_t start = 0;
  for (std::size_t t = 0; t < first; ++t)
    if (!plan.tasks[t].late) start = std::max(start, spans[t].end);
  spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(first));
  for (Span& span : spans) span = {span.begin - start, span.end - start};
  return spans;
}

double makespan_s(const StepPlan& plan, std::span<const Span> spans) {
  std::int64_t end = 0;
  for (std::size_t t = 0; t < spans.size(); ++t)
    if (!plan.tasks[t].late) end = std::max(end, spans[t].end);
  return static_cast<double>(end) * 1e-9;
}

std::array<double, kLanes> exposed_ms(const StepPlan& plan, std::span<const Span> spans, std::int64_t begin) {
  std::array<double, kLanes> exposed{};
  const auto charge = [&](int task, std::int64_t from, std::int64_t to) {
    if (to > from)
      exposed[static_cast<std::size_t>(plan.tasks[index(task)].lane)] += static_cast<double>(to - from) / 1e6;
  };
  std::int64_t free = begin;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    if (task.lane != LaneId::compute || spans[t].end == 0) continue;
    if (free >= 0 && spans[t].begin > free) {
      int last = -1;
      for (const int wait : task.waits)
        if (last < 0 || spans[index(wait)].end > spans[index(last)].end) last = wait;
      // What is left after it was for a late task of the step before, of which there is no span.
      const std::int64_t until =
          task.late_wait < 0 ? spans[t].begin : std::max(free, last < 0 ? free : spans[index(last)].end);
      if (last >= 0) charge(last, free, until);
      if (task.late_wait >= 0) charge(task.late_wait, until, spans[t].begin);
    }
    free = spans[t].end;
  }
  return exposed;
}

BoundSeconds critical_path(const StepPlan& plan, const MachineProfile& machine, std::span<const Span> spans) {
  BoundSeconds path{};
  std::vector<int> before(spans.size(), -1);  // the task of the same lane before it
  std::array<int, kLanes> newest;
  newest.fill(-1);
  int at = -1;
  for (std::size_t t = 0; t < spans.size(); ++t) {
    int& lane = newest[static_cast<std::size_t>(plan.tasks[t].lane)];
    before[t] = lane;
    lane = static_cast<int>(t);
    if (!plan.tasks[t].late && (at < 0 || spans[t].end > spans[index(at)].end)) at = static_cast<int>(t);
  }
  while (at >= 0) {
    const Task& task = plan.tasks[index(at)];
    const BoundSeconds alone = seconds_of(task, machine);
    const double took = static_cast<double>(spans[index(at)].end - spans[index(at)].begin) * 1e-9;
    for (std::size_t b = 0; b < path.size(); ++b) path[b] += took * alone[b] / sum_of(alone);
    int last = before[index(at)];
    for (const int wait : task.waits)
      if (last < 0 || spans[index(wait)].end > spans[index(last)].end) last = wait;
    if (task.late_wait >= 0) {  // of the step before: what is seen of it is that the task began no earlier
      const double waited =
          static_cast<double>(spans[index(at)].begin - (last < 0 ? 0 : spans[index(last)].end)) * 1e-9;
      const BoundSeconds late = seconds_of(plan.tasks[index(task.late_wait)], machine);
      for (std::size_t b = 0; b < path.size(); ++b) path[b] += std::max(0.0, waited) * late[b] / sum_of(late);
    }
    at = last;
  }
  return path;
}

}  // namespace strata::runtime
