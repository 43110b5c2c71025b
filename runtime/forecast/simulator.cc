#include "runtime/forecast/simulator.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/index.h"

namespace strata::runtime {
namespace {

// A running task's demand for each shared resource, as a fraction of it. Over all running tasks the sum may exceed 1.
struct Demand {
  double cores = 0, memory = 0, disk = 0, network = 0;

  Demand& operator+=(const Demand& d) {
    cores += d.cores;
    memory += d.memory;
    disk += d.disk;
    network += d.network;
    return *this;
  }
};

Demand demand_of(const Task& task, const MachineProfile& m, double seconds) {
  const bool disk = task.lane == LaneId::disk_read || task.lane == LaneId::disk_write;
  Demand d{.disk = disk ? 1.0 : 0.0};
  if (m.network_bytes_per_s > 0 && seconds > 0)
    d.network = std::min(1.0, task.cost.between_bytes / m.network_bytes_per_s / seconds);
  if (m.cores == 0 || disk) return d;  // drives use DMA; Running::speed adds their share of the cores
  const bool whole_team = task.lane == LaneId::compute || task.lane == LaneId::host_compute;
  d.cores = whole_team ? 1 : 1 / m.cores;
  // Other compute tasks run mostly from the caches, so they put no demand on memory.
  const bool streams = traits_of(task.kind).traffic == Traffic::optimizer || !whole_team;
  const double bytes = task.cost.bytes + 2 * (task.cost.host_bytes + task.cost.sent_bytes);
  if (streams && seconds > 0) d.memory = std::min(1.0, bytes / seconds / m.memory_bytes_per_s);
  return d;
}

// A running task. `left`: the seconds that it still needs if it runs alone.
struct Running {
  int task = -1;
  double left = 0;
  Demand demand;

  double speed(const Demand& all, const MachineProfile& m) const {
    if (demand.disk > 0) {
      const double ways = all.disk > 1 ? m.disk_both_ways / all.disk : 1;
      return ways * (1 - (1 - m.disk_speed_during_products) * std::min(1.0, all.cores));
    }
    const double cores = all.cores + (all.disk > 0 && m.cores > 0 ? m.disk_core_share : 0);
    double speed = 1;
    if (demand.cores > 0) speed = std::min(speed, 1 / cores);
    if (demand.memory > 0) speed = std::min(speed, 1 / all.memory);
    if (demand.network > 0) speed = std::min(speed, 1 / all.network);
    return speed;
  }
};

bool in_step(const Task& task) {
  return task.when != When::checkpoint;
}

// True if consecutive steps overlap: some tasks are issued before the host writes, or the host does not wait for some.
bool runs_on(const StepPlan& plan, std::span<const Span> spans) {
  const auto first = std::find_if(plan.tasks.begin(), plan.tasks.end(), in_step);
  const auto of_host = [](const Task& task) { return task.lane == LaneId::host; };
  if (std::any_of(first, plan.tasks.end(), of_host) && !of_host(*first)) return true;
  const auto end = static_cast<std::int64_t>(makespan_s(plan, spans) * 1e9);
  return std::any_of(spans.begin(), spans.end(), [&](const Span& span) { return span.end > end + 1; });
}

// A simulated rank, which runs several consecutive steps of its plan.
class SimulatedRank {
 public:
  SimulatedRank(const StepPlan& plan, const MachineProfile& machine, std::size_t steps)
      : plan_(plan), machine_(machine), n_(plan.tasks.size()), spans_(steps * n_), done_(steps * n_) {
    std::size_t hosts = 0;
    for (std::size_t t = 0; t < steps * n_; ++t) {
      const Task& task = this->task(t);
      host_tasks_.push_back(hosts);
      if (!in_step(task)) continue;
      queues_[static_cast<std::size_t>(task.lane)].push_back(t);
      hosts += task.lane == LaneId::host ? 1 : 0;
    }
  }

  // Starts the tasks that may start now. arrived(task, n): true if the message of the n-th receive from task.peer in
  // its lane has been sent.
  template <typename Arrived>
  void start(const Arrived& arrived) {
    all_ = {};
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      Running& r = running_[lane];
      if (r.task < 0 && next_[lane] < queues_[lane].size()) {
        const std::size_t t = queues_[lane][next_[lane]];
        const Task& task = this->task(t);
        if (may_start(t) && (!receives_message(task.kind) || arrived(task, messages(received_, task)))) {
          const double seconds = sum_of(seconds_of(task, machine_));
          r = {static_cast<int>(t), seconds, demand_of(task, machine_, seconds)};
          spans_[t].begin = nanoseconds(now_);
          ++next_[lane];
          if (receives_message(task.kind)) ++messages(received_, task);
        }
      }
      if (r.task >= 0) all_ += r.demand;
    }
  }
  // When the next running task ends; infinity if none is running.
  double next_end() const {
    double least = std::numeric_limits<double>::infinity();
    for (const Running& r : running_)
      if (r.task >= 0) least = std::min(least, r.left / r.speed(all_, machine_));
    return now_ + least;
  }
  // Returns the stages to which a message was sent.
  std::vector<int> advance(double now) {
    const double seconds = now - std::exchange(now_, now);
    std::vector<int> receivers;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      Running& r = running_[lane];
      if (r.task < 0) continue;
      r.left -= seconds * r.speed(all_, machine_);
      if (r.left > 1e-12 * std::max(1.0, now)) continue;  // below the clock's resolution
      spans_[index(r.task)].end = nanoseconds(now);
      done_[index(r.task)] = true;
      const Task& task = this->task(index(r.task));
      if (sends_message(task.kind)) {
        ++messages(sent_, task);
        receivers.push_back(task.peer);
      }
      hosts_done_ += lane == static_cast<std::size_t>(LaneId::host) ? 1 : 0;
      r.task = -1;
    }
    return receivers;
  }
  // The messages that were sent to a stage in a lane.
  std::size_t sent_to(int stage, LaneId lane) const {
    const auto found = sent_.find({stage, lane});
    return found == sent_.end() ? 0 : found->second;
  }
  bool has_run_all() const {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      if (next_[lane] < queues_[lane].size()) return false;
    return true;
  }
  std::vector<Span> take_spans() { return std::move(spans_); }

 private:
  using Messages = std::map<std::pair<int, LaneId>, std::size_t>;  // by peer and lane

  const Task& task(std::size_t t) const { return plan_.tasks[t % n_]; }
  static std::int64_t nanoseconds(double now) { return static_cast<std::int64_t>(now * 1e9); }
  static std::size_t& messages(Messages& all, const Task& task) { return all[{task.peer, task.lane}]; }
  bool over(std::size_t t, int wait) const {
    if (!in_step(plan_.tasks[index(wait)])) return true;
    const std::size_t step = t / n_;
    if (index(wait) < t % n_) return done_[step * n_ + index(wait)];
    return step == 0 || done_[(step - 1) * n_ + index(wait)];
  }
  bool may_start(std::size_t t) const {
    const auto& waits = task(t).waits;
    return hosts_done_ >= host_tasks_[t] && std::all_of(waits.begin(), waits.end(), [&](int w) { return over(t, w); });
  }

  const StepPlan& plan_;
  const MachineProfile& machine_;
  const std::size_t n_;
  std::vector<Span> spans_;
  std::vector<bool> done_;
  std::array<std::vector<std::size_t>, kLanes> queues_;
  std::vector<std::size_t> host_tasks_;  // how many are listed before each run; it starts after they have ended
  std::size_t hosts_done_ = 0;
  std::array<std::size_t, kLanes> next_{};
  std::array<Running, kLanes> running_;
  Demand all_;
  double now_ = 0;  // seconds
  Messages sent_, received_;
};

// Simulates several steps of one rank per plan, each with its own cores and drives. If only one stage's plan is given,
// its receives do not wait.
std::vector<std::vector<Span>> simulate(std::span<const StepPlan* const> plans, const MachineProfile& machine,
                                        std::size_t steps) {
  std::vector<SimulatedRank> ranks;
  ranks.reserve(plans.size());
  for (const StepPlan* const plan : plans) ranks.emplace_back(*plan, machine, steps);
  // A rank can start a task only when one of its own tasks ends, or when a message arrives.
  std::set<std::pair<double, std::size_t>> next;  // when a task of each rank ends
  std::vector<double> ends(ranks.size());
  const auto start = [&](std::size_t r) {
    next.erase({ends[r], r});
    ranks[r].start([&](const Task& task, std::size_t n) {
      return plans.size() == 1 || ranks[index(task.peer)].sent_to(plans[r]->stage, task.lane) > n;
    });
    ends[r] = ranks[r].next_end();
    if (ends[r] < std::numeric_limits<double>::infinity()) next.insert({ends[r], r});
  };
  for (std::size_t r = 0; r < ranks.size(); ++r) start(r);
  while (!next.empty()) {
    const double now = next.begin()->first;
    std::vector<std::size_t> woken = {next.begin()->second};
    for (std::size_t i = 0; i < woken.size(); ++i) {
      const std::vector<int> receivers = ranks[woken[i]].advance(now);
      start(woken[i]);
      if (plans.size() > 1) std::ranges::transform(receivers, std::back_inserter(woken), index<int>);
    }
  }
  std::vector<std::vector<Span>> spans;
  for (SimulatedRank& rank : ranks) {
    STRATA_CHECK(rank.has_run_all());
    spans.push_back(rank.take_spans());
  }
  return spans;
}
std::vector<Span> simulate(const StepPlan& plan, const MachineProfile& machine, std::size_t steps) {
  const StepPlan* const one = &plan;
  return std::move(simulate({&one, 1}, machine, steps)[0]);
}

// The tasks that the step's end waits for: the host lane's tasks and those that they wait for, in this step or in the
// previous one; all tasks if the plan has no host tasks.
std::vector<int> ends_of(const StepPlan& plan) {
  std::vector<int> ends;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    if (task.lane != LaneId::host) continue;
    ends.push_back(static_cast<int>(t));
    ends.insert(ends.end(), task.waits.begin(), task.waits.end());
  }
  if (ends.empty()) {
    ends.resize(plan.tasks.size());
    std::iota(ends.begin(), ends.end(), 0);
  }
  return ends;
}

int last_of(std::span<const int> tasks, std::span<const Span> spans) {
  int last = -1;
  for (const int t : tasks)
    if (last < 0 || spans[index(t)].end > spans[index(last)].end) last = t;
  return last;
}

// The task's wait that ended last, and a wait for a task of the previous step.
struct LastWait {
  int in_step = -1, across = -1;
};
LastWait last_wait(const StepPlan& plan, std::size_t t, std::span<const Span> spans) {
  LastWait last;
  for (const int wait : plan.tasks[t].waits) {
    if (!in_step(plan.tasks[index(wait)])) continue;
    if (index(wait) >= t)
      last.across = wait;
    else if (last.in_step < 0 || spans[index(wait)].end > spans[index(last.in_step)].end)
      last.in_step = wait;
  }
  return last;
}

// The last compute task that had ended when the message of the receive `task` arrived; -1: none.
int last_compute(const StepPlan& plan, std::span<const Span> spans, int task, std::int64_t arrived) {
  int last = -1;
  for (std::size_t t = 0; t < spans.size(); ++t) {
    if (plan.tasks[t].lane != LaneId::compute || spans[t].end == 0 || spans[t].end > arrived) continue;
    // A task without duration may itself have waited for the message.
    if (spans[t].end == spans[index(task)].end && static_cast<int>(t) > task) continue;
    if (last < 0 || spans[t].end >= spans[index(last)].end) last = static_cast<int>(t);
  }
  return last;
}

}  // namespace

std::vector<Span> simulate(const StepPlan& plan, const MachineProfile& machine) {
  std::vector<Span> spans = simulate(plan, machine, 1);
  if (!runs_on(plan, spans)) return spans;
  // The second of two simulated steps runs while tasks of the previous step are still running.
  const auto n = static_cast<std::ptrdiff_t>(plan.tasks.size());
  spans = simulate(plan, machine, 2);
  const auto begin = static_cast<std::int64_t>(makespan_s(plan, std::span(spans).first(plan.tasks.size())) * 1e9);
  spans.erase(spans.begin(), spans.begin() + n);
  for (std::size_t t = 0; t < spans.size(); ++t)
    if (in_step(plan.tasks[t])) spans[t] = {spans[t].begin - begin, spans[t].end - begin};
  return spans;
}

std::vector<std::vector<Span>> simulate(std::span<const StepPlan* const> stages, const MachineProfile& machine) {
  return simulate(stages, machine, 1);
}

int last_awaited(const StepPlan& plan, std::span<const Span> spans) {
  return last_of(ends_of(plan), spans);
}

double makespan_s(const StepPlan& plan, std::span<const Span> spans) {
  const int last = last_awaited(plan, spans);
  return last < 0 ? 0 : static_cast<double>(spans[index(last)].end) * 1e-9;
}

double makespan_s(std::span<const SimulatedStage> stages) {
  double most = 0;
  for (const auto& [plan, spans] : stages) most = std::max(most, makespan_s(*plan, spans));
  return most;
}

double idle_share(const StepPlan& plan, std::span<const Span> spans, double step_ms) {
  double busy = 0;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t)
    if (plan.tasks[t].lane == LaneId::compute) busy += static_cast<double>(spans[t].end - spans[t].begin) * 1e-6;
  return step_ms > 0 ? std::clamp(1 - busy / step_ms, 0.0, 1.0) : 0;
}

std::array<double, kLanes> exposed_ms(const StepPlan& plan, std::span<const Span> spans, std::int64_t begin) {
  std::array<double, kLanes> exposed{};
  const auto charge = [&](int task, std::int64_t from, std::int64_t to) {
    if (to > from)
      exposed[static_cast<std::size_t>(plan.tasks[index(task)].lane)] += static_cast<double>(to - from) / 1e6;
  };
  std::int64_t free = begin;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    if (plan.tasks[t].lane != LaneId::compute || spans[t].end == 0) continue;
    if (free >= 0 && spans[t].begin > free) {
      const auto [last, across] = last_wait(plan, t, spans);
      const std::int64_t until = across < 0 ? spans[t].begin : std::max(free, last < 0 ? free : spans[index(last)].end);
      if (last >= 0) charge(last, free, until);
      if (across >= 0) charge(across, until, spans[t].begin);
    }
    free = spans[t].end;
  }
  return exposed;
}

std::vector<std::int64_t> send_times(std::span<const SimulatedStage> stages, int stage) {
  std::map<std::pair<int, LaneId>, std::vector<std::int64_t>> sent;  // by sender and lane
  for (const auto& [plan, spans] : stages)
    for (std::size_t t = 0; t < plan->tasks.size(); ++t)
      if (const Task& task = plan->tasks[t]; sends_message(task.kind) && task.peer == stage)
        sent[{plan->stage, task.lane}].push_back(spans[t].begin);
  const StepPlan& own = *stages[index(stage)].plan;
  std::map<std::pair<int, LaneId>, std::size_t> received;
  std::vector<std::int64_t> out(own.tasks.size());
  for (std::size_t t = 0; t < own.tasks.size(); ++t)
    if (const Task& task = own.tasks[t]; receives_message(task.kind))
      out[t] = sent[{task.peer, task.lane}].at(received[{task.peer, task.lane}]++);
  return out;
}

BoundSeconds critical_path(const StepPlan& plan, const MachineProfile& machine, std::span<const Span> spans,
                           int last_task, std::span<const std::int64_t> send_times) {
  BoundSeconds path{};
  const auto add = [&](int task, double seconds) {
    const BoundSeconds alone = seconds_of(plan.tasks[index(task)], machine);
    if (const double all = sum_of(alone); all > 0)
      for (std::size_t b = 0; b < path.size(); ++b) path[b] += std::max(0.0, seconds) * alone[b] / all;
  };
  std::vector<int> before(spans.size(), -1);  // the previous task in the same lane
  std::array<int, kLanes> newest;
  newest.fill(-1);
  for (std::size_t t = 0; t < spans.size(); ++t) {
    if (!in_step(plan.tasks[t])) continue;
    before[t] = std::exchange(newest[static_cast<std::size_t>(plan.tasks[t].lane)], static_cast<int>(t));
  }
  for (int at = last_task >= 0 ? last_task : last_awaited(plan, spans); at >= 0;) {
    const Span& span = spans[index(at)];
    const double lasted = static_cast<double>(span.end - span.begin) * 1e-9;
    if (const Task& task = plan.tasks[index(at)]; receives_message(task.kind)) {
      // Until the message arrived, this stage did its own work, or waited for other stages.
      const double alone = std::min(lasted, sum_of(seconds_of(task, machine)));
      add(at, alone);
      const std::int64_t arrived = span.end - static_cast<std::int64_t>(alone * 1e9);
      const int own = last_compute(plan, spans, at, arrived);
      const std::int64_t free = own < 0 ? std::min<std::int64_t>(0, arrived) : spans[index(own)].end;
      const std::int64_t sent = send_times.empty() ? arrived : std::clamp(send_times[index(at)], free, arrived);
      path[static_cast<std::size_t>(Bound::stages)] += static_cast<double>(sent - free) * 1e-9;
      path[static_cast<std::size_t>(Bound::communication)] += static_cast<double>(arrived - sent) * 1e-9;
      at = own;
      continue;
    }
    add(at, lasted);
    const auto [awaited, across] = last_wait(plan, index(at), spans);
    int last = before[index(at)];
    if (awaited >= 0 && (last < 0 || spans[index(awaited)].end > spans[index(last)].end)) last = awaited;
    // A wait for the previous step has no span. It shows only in the task's late start.
    if (across >= 0) add(across, static_cast<double>(span.begin - (last < 0 ? 0 : spans[index(last)].end)) * 1e-9);
    at = last;
  }
  return path;
}

}  // namespace strata::runtime
