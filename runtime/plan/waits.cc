#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/index.h"
#include "runtime/plan/passes.h"

namespace strata::runtime {
namespace {

// Two consecutive steps of a plan: runs [0, tasks) and [tasks, 2 * tasks).
class TwoSteps {
 public:
  explicit TwoSteps(const StepPlan& plan) : plan_(plan), tasks_(static_cast<int>(plan.tasks.size())) {}

  int runs() const { return 2 * tasks_; }
  const Task& task(int run) const { return plan_.tasks[index(number_of(run))]; }
  int number_of(int run) const { return run < tasks_ ? run : run - tasks_; }
  int step_of(int run) const { return run < tasks_ ? 0 : 1; }
  // True if both runs are in the same step and under the same condition: neither is then left out without the other.
  bool together(int a, int b) const { return task(a).when == task(b).when && step_of(a) == step_of(b); }
  // Given that `later` waits for `earlier`: true if a task that waits for the newest run of later's task may rely on
  // `earlier` having ended. Tasks that run alone may follow `earlier` in a step without `later`, but all previous steps
  // have ended before they run.
  bool covers(int later, int earlier) const {
    const bool always = task(later).when == When::always;
    return together(later, earlier) ||
           (always && (task(earlier).when == When::always || step_of(earlier) < step_of(later)));
  }

 private:
  const StepPlan& plan_;
  int tasks_;
};

// The runs that have certainly ended: the newest of each lane. Tasks that a step may leave out are counted separately,
// by condition (When) and step, because all tasks of one condition are present in a step or none.
class Clock {
 public:
  Clock() { newest_.fill(-1); }
  bool has(const TwoSteps& steps, int run) const { return newest_[place_of(steps, run)] >= run; }
  void add(const TwoSteps& steps, int run) {
    int& newest = newest_[place_of(steps, run)];
    newest = std::max(newest, run);
  }
  void add(const Clock& other) {
    for (std::size_t i = 0; i < newest_.size(); ++i) newest_[i] = std::max(newest_[i], other.newest_[i]);
  }

 private:
  static constexpr std::size_t kKindsOfRuns = 1 + 2 * (kWhens - 1);
  static std::size_t place_of(const TwoSteps& steps, int run) {
    const auto lane = static_cast<std::size_t>(steps.task(run).lane);
    const auto when = static_cast<std::size_t>(steps.task(run).when);
    return lane * kKindsOfRuns + (when == 0 ? 0 : 2 * when - 1 + index(steps.step_of(run)));
  }
  std::array<int, kLanes * kKindsOfRuns> newest_;
};

// The runs that have ended when a task begins: for one that runs in every step (`always`), and for one that may run
// alone with the tasks of its condition, among those tasks in its step (`alone`).
struct Known {
  Clock always;
  std::array<Clock, kWhens> alone;

  void begin_step() { alone = {}; }
  // Adds the runs that have ended by the end of a run.
  void add(When when, const Clock& ended) {
    always.add(ended);
    if (when != When::always) alone[static_cast<std::size_t>(when)].add(ended);
  }
};

// A tier's memory, cut at the ends of accesses, with the accesses that a later one may have to wait for.
class Touches {
 public:
  // Records the run's access to [begin, end), and appends to `needed` the earlier runs that it must wait for.
  void touch(const TwoSteps& steps, int run, std::size_t begin, std::size_t end, bool writes,
             std::vector<int>& needed) {
    split(begin);
    split(end);
    bool alone = writes;  // only this run's access remains
    auto at = ranges_.lower_bound(begin);
    for (std::size_t from = begin; from < end; from = at->second.end, ++at) {
      if (at == ranges_.end() || at->first != from)
        at = ranges_.insert(at, {from, {at == ranges_.end() ? end : std::min(end, at->first), {}}});
      auto& touches = at->second.touches;
      std::erase_if(touches, [&](const Touch& earlier) {
        if (earlier.run == run) return false;
        if (writes || earlier.writes) needed.push_back(earlier.run);
        // A task that waits for this write also waits for all that the write covers. A task that waits for this read
        // also waits for earlier reads in the read's lane.
        const bool one_lane = steps.task(earlier.run).lane == steps.task(run).lane;
        return steps.covers(run, earlier.run) && (writes || (!earlier.writes && one_lane));
      });
      touches.push_back({run, writes});
      alone = alone && touches.size() == 1;
    }
    if (!alone) return;
    ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
    ranges_[begin] = {end, {{run, true}}};
  }

 private:
  struct Touch {
    int run;
    bool writes;
  };
  struct Touched {
    std::size_t end;
    std::vector<Touch> touches;
  };
  // Cuts the range that contains `at`, so that a range begins there.
  void split(std::size_t at) {
    auto next = ranges_.upper_bound(at);
    if (next == ranges_.begin()) return;
    auto& [begin, range] = *std::prev(next);
    if (begin == at || range.end <= at) return;
    ranges_.insert(next, {at, range});
    range.end = at;
  }

  std::map<std::size_t, Touched> ranges_;  // by first byte; they do not overlap
};

}  // namespace

// A task waits for every earlier task that touched the same memory, in its own step and in the previous one, unless
// both only read. Memory counts, not buffers: a buffer that reuses another buffer's memory waits for the last users of
// the other.
//
// Waits that follow from others are left out, with two exceptions for tasks that a step may leave out. No task relies
// on one of them having waited for tasks of other conditions. And since the tasks of a condition may run alone, a wait
// between two of them is left out only if it follows from waits between them.
void derive_waits(StepPlan& plan) {
  const TwoSteps steps(plan);
  std::array<Touches, kTiers> touched;
  std::vector<Clock> ended(index(steps.runs()));  // by run: what has ended once it has, itself included
  std::array<Known, kLanes> lanes;                // what has ended once the newest run of each lane has
  Known issued;                                   // the runs that the issuing thread has waited for
  std::vector<int> needed, waits;                 // those of one run

  for (int run = 0; run < steps.runs(); ++run) {
    if (steps.number_of(run) == 0) {
      for (Known& known : lanes) known.begin_step();
      issued.begin_step();
    }
    const Task& task = steps.task(run);
    const auto when = static_cast<std::size_t>(task.when);
    Known& lane = lanes[static_cast<std::size_t>(task.lane)];
    Clock clock = lane.always, alone = lane.alone[when];
    clock.add(issued.always);
    alone.add(issued.alone[when]);

    needed.clear();
    waits.clear();
    for (const Use& use : task.uses) {
      const Buffer& buffer = plan.buffers[index(use.buffer)];
      const auto [begin, end] = touched_by(use, buffer);
      if (begin == end) continue;
      touched[static_cast<std::size_t>(buffer.tier)].touch(steps, run, begin, end, use.access != Access::read, needed);
    }
    // Newest first, because waiting for one often covers the older ones.
    std::sort(needed.begin(), needed.end(), std::greater<>());
    for (const int earlier : needed) {
      const bool together = task.when != When::always && steps.together(run, earlier);
      if ((together ? alone : clock).has(steps, earlier)) continue;
      waits.push_back(steps.number_of(earlier));
      clock.add(ended[index(earlier)]);
      if (together) alone.add(ended[index(earlier)]);
    }
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    plan.tasks[index(steps.number_of(run))].waits = waits;

    ended[index(run)] = task.when == When::always ? clock : alone;
    ended[index(run)].add(steps, run);
    lane.add(task.when, ended[index(run)]);
    if (task.lane == LaneId::host) issued.add(task.when, ended[index(run)]);
  }
}

}  // namespace strata::runtime
