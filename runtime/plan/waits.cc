#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "runtime/plan/planner.h"

namespace strata::runtime {
namespace {

// For each lane the newest task that has surely ended.
using Clock = std::array<int, kLanes>;

void merge(Clock& into, const Clock& from) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) into[lane] = std::max(into[lane], from[lane]);
}

// A tier's memory as stretches, each with the accesses that a later one may have to wait for.
class Touches {
 public:
  // Adds the task's access to [begin, end), and to `needed` the earlier ones that it waits for.
  void touch(const StepPlan& plan, int task, std::size_t begin, std::size_t end, bool writes,
             std::vector<int>& needed) {
    split(begin);
    split(end);
    auto at = stretches_.lower_bound(begin);
    for (std::size_t from = begin; from < end; from = at->second.end, ++at) {
      if (at == stretches_.end() || at->first != from)
        at = stretches_.insert(at, {from, {at == stretches_.end() ? end : std::min(end, at->first), {}}});
      auto& touches = at->second.touches;
      std::erase_if(touches, [&](const Touch& earlier) {
        if (earlier.task == task) return false;
        if (writes || earlier.writes) needed.push_back(earlier.task);
        // Who waits for this write waits for what it covers; who waits for this read, for its lane's earlier ones.
        return writes || (!earlier.writes && lane_of(plan, earlier.task) == lane_of(plan, task));
      });
      touches.push_back({task, writes});
    }
    if (!writes) return;
    stretches_.erase(stretches_.lower_bound(begin), stretches_.lower_bound(end));
    stretches_[begin] = {end, {{task, true}}};
  }

 private:
  struct Touch {
    int task;
    bool writes;
  };
  struct Stretch {
    std::size_t end;
    std::vector<Touch> touches;
  };
  static LaneId lane_of(const StepPlan& plan, int task) { return plan.tasks[static_cast<std::size_t>(task)].lane; }
  // Makes `at` a border.
  void split(std::size_t at) {
    auto next = stretches_.upper_bound(at);
    if (next == stretches_.begin()) return;
    auto& [begin, stretch] = *std::prev(next);
    if (begin == at || stretch.end <= at) return;
    stretches_.insert(next, {at, stretch});
    stretch.end = at;
  }

  std::map<std::size_t, Stretch> stretches_;  // by first byte; they do not overlap
};

// What the late tasks of the step before still use is theirs: who uses it first in this one waits for them. They are of
// one lane, so that the newest awaited stands for those before it.
void derive_late_waits(StepPlan& plan) {
  std::vector<int> newest(plan.buffers.size(), -1);  // by buffer: the late task that uses it
  std::optional<LaneId> lane;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    if (!task.late) continue;
    STRATA_CHECK(lane.value_or(task.lane) == task.lane);
    lane = task.lane;
    for (const Use& use : task.uses) newest[static_cast<std::size_t>(use.buffer)] = static_cast<int>(t);
  }
  if (!lane) return;
  std::vector<int> ended(plan.tasks.size(), -1);  // the newest late task that has surely ended when the task has
  std::array<int, kLanes> previous;
  previous.fill(-1);
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    Task& task = plan.tasks[t];
    int& before = previous[static_cast<std::size_t>(task.lane)];
    int known = before >= 0 ? ended[static_cast<std::size_t>(before)] : -1;
    if (task.lane == *lane) known = static_cast<int>(plan.tasks.size());
    for (const int wait : task.waits) known = std::max(known, ended[static_cast<std::size_t>(wait)]);
    for (const Use& use : task.uses)
      if (const int late = newest[static_cast<std::size_t>(use.buffer)]; late > known) known = task.late_wait = late;
    ended[t] = known;
    before = static_cast<int>(t);
  }
}

}  // namespace

// A task waits for every earlier one that touched the same memory, unless both only read. Memory counts, not buffers:
// a buffer laid over one that has ended waits for the ended one's last users. Waits that follow from others are left
// out.
void derive_waits(StepPlan& plan) {
  std::array<Touches, kTiers> touched;
  std::vector<Clock> ended(plan.tasks.size());  // when the task has ended, itself included
  std::array<int, kLanes> previous;
  previous.fill(-1);

  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    Task& task = plan.tasks[t];
    task.waits.clear();
    task.late_wait = -1;
    const auto lane = static_cast<std::size_t>(task.lane);
    Clock clock;
    clock.fill(-1);
    if (previous[lane] >= 0) clock = ended[static_cast<std::size_t>(previous[lane])];

    std::vector<int> needed;
    for (const Use& use : task.uses) {
      const Buffer& buffer = plan.buffers[static_cast<std::size_t>(use.buffer)];
      const auto [begin, end] = touched_by(use, buffer);
      if (begin == end) continue;
      touched[static_cast<std::size_t>(buffer.tier)].touch(plan, static_cast<int>(t), begin, end,
                                                           use.access != Access::read, needed);
    }
    // Newest first: it often covers the older ones.
    std::sort(needed.begin(), needed.end(), std::greater<>());
    for (const int earlier : needed) {
      const auto from = static_cast<std::size_t>(plan.tasks[static_cast<std::size_t>(earlier)].lane);
      if (clock[from] >= earlier) continue;
      task.waits.push_back(earlier);
      merge(clock, ended[static_cast<std::size_t>(earlier)]);
    }
    std::sort(task.waits.begin(), task.waits.end());
    clock[lane] = static_cast<int>(t);
    ended[t] = clock;
    previous[lane] = static_cast<int>(t);
  }
  derive_late_waits(plan);
}

}  // namespace strata::runtime
