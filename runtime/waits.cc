#include <algorithm>

#include "runtime/planner.h"

namespace strata::runtime {
namespace {

// For each lane the newest task that has surely ended.
using Clock = std::array<int, kLanes>;

void merge(Clock& into, const Clock& from) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) into[lane] = std::max(into[lane], from[lane]);
}

// One earlier access to a stretch of memory.
struct Touch {
  int task;
  std::size_t begin, end;
  bool writes;
};

}  // namespace

// A task waits for every earlier one that touched the same memory, unless both only read. Memory counts, not buffers:
// a buffer laid over one that has ended waits for the ended one's last users. Waits that follow from others are left
// out.
void derive_waits(StepPlan& plan) {
  std::array<std::vector<Touch>, kTiers> touched;
  std::vector<Clock> ended(plan.tasks.size());  // when the task has ended, itself included
  std::array<int, kLanes> previous;
  previous.fill(-1);

  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    Task& task = plan.tasks[t];
    task.waits.clear();
    const auto lane = static_cast<std::size_t>(task.lane);
    Clock clock;
    clock.fill(-1);
    if (previous[lane] >= 0) clock = ended[static_cast<std::size_t>(previous[lane])];

    std::vector<int> needed;
    for (const Use& use : task.uses) {
      const Buffer& buffer = plan.buffers[static_cast<std::size_t>(use.buffer)];
      const std::size_t begin = buffer.offset, end = begin + buffer.bytes;
      const bool writes = use.access != Access::read;
      auto& touches = touched[static_cast<std::size_t>(buffer.tier)];
      std::erase_if(touches, [&](const Touch& touch) {
        if (touch.end <= begin || end <= touch.begin || touch.task == static_cast<int>(t)) return false;
        if (writes || touch.writes) needed.push_back(touch.task);
        // Who waits for this write waits for what it covers; who waits for this read, for its lane's earlier ones.
        const bool covered = begin <= touch.begin && touch.end <= end;
        return covered &&
               (writes || (!touch.writes && plan.tasks[static_cast<std::size_t>(touch.task)].lane == task.lane));
      });
      touches.push_back({static_cast<int>(t), begin, end, writes});
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
}

}  // namespace strata::runtime
