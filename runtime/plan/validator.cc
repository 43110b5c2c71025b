#include "runtime/plan/validator.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace strata::runtime {
namespace {

std::string describe(const StepPlan& plan, std::size_t t) {
  const Task& task = plan.tasks[t];
  return fmt::format("task {} ({} of unit {}, lane {})", t, kTaskNames[static_cast<std::size_t>(task.kind)], task.unit,
                     kLaneNames[static_cast<std::size_t>(task.lane)]);
}

// Which tasks have surely ended before each task starts: per lane the newest. Uses the order inside lanes and the
// waits, nothing that the planner computed on the way.
class HappensBefore {
 public:
  explicit HappensBefore(const StepPlan& plan) : plan_(plan), before_(plan.tasks.size()) {
    std::array<int, kLanes> previous;
    previous.fill(-1);
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      before_[t].fill(-1);
      const auto lane = static_cast<std::size_t>(plan.tasks[t].lane);
      if (previous[lane] >= 0) absorb(t, previous[lane]);
      for (const int wait : plan.tasks[t].waits) absorb(t, wait);
      previous[lane] = static_cast<int>(t);
    }
  }
  bool ordered(std::size_t earlier, std::size_t later) const {
    return before_[later][static_cast<std::size_t>(plan_.tasks[earlier].lane)] >= static_cast<int>(earlier);
  }

 private:
  void absorb(std::size_t t, int earlier) {
    const auto e = static_cast<std::size_t>(earlier);
    for (std::size_t lane = 0; lane < kLanes; ++lane) before_[t][lane] = std::max(before_[t][lane], before_[e][lane]);
    int& own = before_[t][static_cast<std::size_t>(plan_.tasks[e].lane)];
    own = std::max(own, earlier);
  }

  const StepPlan& plan_;
  std::vector<std::array<int, kLanes>> before_;
};

// The tiers whose memory a lane's work can address.
bool reaches(LaneId lane, Tier tier) {
  switch (lane) {
    case LaneId::upload:
    case LaneId::download:
      return tier != Tier::nvme;
    case LaneId::disk_read:
    case LaneId::disk_write:
      return tier != Tier::device;
    case LaneId::host_compute:
      return tier == Tier::host;
    default:
      return tier == Tier::device;
  }
}

// State that a step reads from NVMe for the update of the next one, into buffers that live on between the two: the
// update must find there what its home held last, and only it writes what comes of that home.
std::optional<std::string> find_stale_read_ahead(const StepPlan& plan) {
  const auto buffer = [&](const Use& use) -> const Buffer& {
    return plan.buffers[static_cast<std::size_t>(use.buffer)];
  };
  const auto lives_on = [&](const Use& use) { return buffer(use).whole_cycle && buffer(use).kind == Kind::staging; };
  std::vector<bool> filled(plan.buffers.size());
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    if (task.kind != TaskKind::read || task.pending) continue;
    for (std::size_t i = 0; i + 1 < task.uses.size(); i += 2) {
      const Use &home = task.uses[i], &ahead = task.uses[i + 1];
      if (!lives_on(ahead)) continue;
      filled[static_cast<std::size_t>(ahead.buffer)] = true;
      for (std::size_t later = t + 1; later < plan.tasks.size(); ++later)
        for (const Use& use : plan.tasks[later].uses)
          if (use.buffer == home.buffer && use.access != Access::read)
            return fmt::format("{} reads \"{}\" ahead, which {} writes later", describe(plan, t), buffer(home).name,
                               describe(plan, later));
    }
  }
  for (std::size_t t = 0; t < plan.tasks.size(); ++t)
    for (const Use& use : plan.tasks[t].uses) {
      if (!lives_on(use) || use.access == Access::write) continue;
      if (!plan.tasks[t].pending)
        return fmt::format("{} uses \"{}\", which is for the next step", describe(plan, t), buffer(use).name);
      if (!filled[static_cast<std::size_t>(use.buffer)])
        return fmt::format("{} reads \"{}\", which no step fills", describe(plan, t), buffer(use).name);
    }
  return std::nullopt;
}

// Late tasks of the step before go on beside this one: they use parameters that live from step to step, which whatever
// uses them now waits for. All else the host may write between two steps.
std::optional<std::string> find_late_conflict(const StepPlan& plan) {
  for (std::size_t late = 0; late < plan.tasks.size(); ++late) {
    const Task& task = plan.tasks[late];
    if (!task.late) continue;
    if (plan.cyclic) return fmt::format("{} is late in a cycle", describe(plan, late));
    for (const Use& use : task.uses)
      if (const Buffer& buffer = plan.buffers[static_cast<std::size_t>(use.buffer)];
          !buffer.whole_cycle || buffer.kind != Kind::parameters)
        return fmt::format("{} is late and uses \"{}\", which is the step's", describe(plan, late), buffer.name);
    std::vector<bool> after(plan.tasks.size());  // by task of the next step: the late one has surely ended before
    std::array<bool, kLanes> lane_after{};
    lane_after[static_cast<std::size_t>(task.lane)] = true;
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const Task& next = plan.tasks[t];
      auto&& of_lane = lane_after[static_cast<std::size_t>(next.lane)];
      // The step's end leaves out the lane.
      if (!next.late && next.lane == task.lane)
        return fmt::format("{} is not late, as others of its lane are", describe(plan, t));
      const auto awaited = next.late_wait >= 0 ? static_cast<std::size_t>(next.late_wait) : 0;
      if (next.late_wait >= 0 && (awaited >= plan.tasks.size() || !plan.tasks[awaited].late))
        return fmt::format("{} waits for task {} of the step before, which is not late", describe(plan, t), awaited);
      after[t] = of_lane || (next.late_wait >= 0 && awaited >= late && plan.tasks[awaited].lane == task.lane) ||
                 std::any_of(next.waits.begin(), next.waits.end(),
                             [&](int wait) { return after[static_cast<std::size_t>(wait)]; });
      of_lane = after[t];
      if (after[t]) continue;
      for (const Use& use : next.uses)
        for (const Use& theirs : task.uses)
          if (use.buffer == theirs.buffer && (use.access != Access::read || theirs.access != Access::read))
            return fmt::format("{} may run beside {} of the step before, and both use \"{}\"", describe(plan, t),
                               describe(plan, late), plan.buffers[static_cast<std::size_t>(use.buffer)].name);
    }
  }
  return std::nullopt;
}

bool is_collective(const Task& task) {
  return task.cost.sent_bytes > 0;
}

}  // namespace

std::optional<std::string> find_violation(const StepPlan& plan, const std::array<std::size_t, kTiers>& capacity) {
  for (const Buffer& b : plan.buffers)
    if (b.offset + b.bytes > capacity[static_cast<std::size_t>(b.tier)])
      return fmt::format("buffer \"{}\" ends at {}, past the {} bytes of tier {}", b.name, b.offset + b.bytes,
                         capacity[static_cast<std::size_t>(b.tier)], kTierNames[static_cast<std::size_t>(b.tier)]);
  for (std::size_t t = 0; t < plan.tasks.size(); ++t)
    for (const int wait : plan.tasks[t].waits)
      if (wait < 0 || wait >= static_cast<int>(t))
        return fmt::format("{} waits for task {}, which is not earlier", describe(plan, t), wait);

  // What lives from step to step shares its memory with nothing.
  std::vector<const Buffer*> by_offset;
  for (const Buffer& b : plan.buffers) by_offset.push_back(&b);
  std::sort(by_offset.begin(), by_offset.end(), [](const Buffer* a, const Buffer* b) {
    return a->tier != b->tier ? a->tier < b->tier : a->offset < b->offset;
  });
  for (std::size_t i = 0; i < by_offset.size(); ++i)
    for (std::size_t j = i + 1; j < by_offset.size(); ++j) {
      const Buffer &a = *by_offset[i], &b = *by_offset[j];
      if (a.tier != b.tier || b.offset >= a.offset + a.bytes) break;
      if (a.whole_cycle || b.whole_cycle)
        return fmt::format("buffers \"{}\" and \"{}\" overlap, and one of them lives from step to step", a.name,
                           b.name);
    }

  struct Touch {
    std::size_t task;
    int buffer;
    Access access;
    std::size_t begin, end;  // bytes of the tier
  };
  const HappensBefore order(plan);
  std::vector<Touch> touches;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    for (const Use& use : plan.tasks[t].uses) {
      const Buffer& buffer = plan.buffers[static_cast<std::size_t>(use.buffer)];
      if (!reaches(plan.tasks[t].lane, buffer.tier))
        return fmt::format("{} uses \"{}\" of tier {}, which its lane cannot address", describe(plan, t), buffer.name,
                           kTierNames[static_cast<std::size_t>(buffer.tier)]);
      const auto [begin, end] = touched_by(use, buffer);
      // What this use would read: the newest write, ordered before it, into any of its memory.
      int written = buffer.whole_cycle ? use.buffer : -1;
      // The same in a step that leaves out the update which the one before might have left, or in that update alone.
      int written_apart = written;
      for (const Touch& touch : touches) {
        const Buffer& other = plan.buffers[static_cast<std::size_t>(touch.buffer)];
        if (other.tier != buffer.tier || touch.begin >= end || begin >= touch.end) continue;
        if (use.access == Access::read && touch.access == Access::read) continue;
        if (touch.task == t) {
          if (touch.buffer != use.buffer)
            return fmt::format("{} uses \"{}\" and \"{}\", which overlap", describe(plan, t), buffer.name, other.name);
          continue;
        }
        if (!order.ordered(touch.task, t))
          return fmt::format("{} and {} may run at the same time and share memory (\"{}\", \"{}\")", describe(plan, t),
                             describe(plan, touch.task), buffer.name, other.name);
        if (touch.access == Access::read) continue;
        written = touch.buffer;
        if (plan.tasks[touch.task].pending == plan.tasks[t].pending) written_apart = touch.buffer;
      }
      touches.push_back({t, use.buffer, use.access, begin, end});
      if (use.access == Access::write) continue;
      if (written != use.buffer)
        return fmt::format("{} reads \"{}\", which {}", describe(plan, t), buffer.name,
                           written < 0 ? "nothing has written" : "another buffer has overwritten");
      if (written_apart != use.buffer)
        return fmt::format("{} reads \"{}\", which {} {}", describe(plan, t), buffer.name,
                           written_apart < 0 ? "nothing has written" : "another buffer has overwritten",
                           plan.tasks[t].pending ? "where the update runs alone" : "where no update is pending");
    }
  }
  if (auto conflict = find_late_conflict(plan)) return conflict;
  return find_stale_read_ahead(plan);
}

std::optional<std::string> find_mismatch(std::span<const StepPlan> ranks) {
  const auto collectives = [](const StepPlan& plan) {
    std::vector<const Task*> list;
    for (const Task& task : plan.tasks)
      if (is_collective(task)) list.push_back(&task);
    return list;
  };
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const auto first = collectives(ranks[0]), mine = collectives(ranks[r]);
    for (std::size_t i = 0; i < std::max(first.size(), mine.size()); ++i) {
      const bool same = i < first.size() && i < mine.size() && first[i]->kind == mine[i]->kind &&
                        first[i]->lane == mine[i]->lane && first[i]->unit == mine[i]->unit &&
                        first[i]->micro_batch == mine[i]->micro_batch && first[i]->shared == mine[i]->shared &&
                        first[i]->begin == mine[i]->begin && first[i]->end == mine[i]->end &&
                        first[i]->cost.sent_bytes == mine[i]->cost.sent_bytes;
      if (!same) return fmt::format("collective {} of rank {} is not that of rank 0", i, r);
    }
  }
  return std::nullopt;
}

}  // namespace strata::runtime
