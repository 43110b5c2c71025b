#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"
#include "runtime/plan/passes.h"

namespace strata::runtime {
namespace {

// A tier's memory: the byte ranges given out so far, each with the lifetimes of the buffers that took it in turn. Steps
// of many micro-batches reuse the same few ranges; in vertical order there are as many ranges as buffers.
class TierSpaces {
 public:
  explicit TierSpaces(std::size_t base) : base_(base) {}

  // Takes the lowest offset at which the bytes are free throughout `lifetime`.
  std::size_t take(std::size_t bytes, const Lifetime& lifetime) {
    std::size_t offset = base_;
    for (const Space& space : spaces_) {
      if (offset + bytes <= space.begin) break;
      if (offset < space.end && taken(space, lifetime)) offset = space.end;
    }
    Space& space = space_at(offset, offset + bytes);
    space.all = {std::min(space.all.first, lifetime.first), std::max(space.all.last, lifetime.last)};
    auto& lifetimes = lifetimes_[space.lifetimes];
    lifetimes.insert(std::lower_bound(lifetimes.begin(), lifetimes.end(), lifetime, before), lifetime);
    return offset;
  }

 private:
  struct Space {
    std::size_t begin, end;  // bytes
    Lifetime all;            // from the start of its first lifetime to the end of its last
    std::size_t lifetimes;   // index
  };
  static bool before(const Lifetime& a, const Lifetime& b) { return a.last < b.first; }

  bool taken(const Space& space, const Lifetime& lifetime) const {
    if (before(space.all, lifetime) || before(lifetime, space.all)) return false;
    const auto& lifetimes = lifetimes_[space.lifetimes];
    return std::binary_search(lifetimes.begin(), lifetimes.end(), lifetime, before);
  }
  Space& space_at(std::size_t begin, std::size_t end) {
    auto at = std::lower_bound(spaces_.begin(), spaces_.end(), begin,
                               [](const Space& s, std::size_t b) { return s.begin < b; });
    while (at != spaces_.end() && at->begin == begin && at->end != end) ++at;
    if (at != spaces_.end() && at->begin == begin) return *at;
    lifetimes_.emplace_back();
    return *spaces_.insert(at, {begin, end, {std::numeric_limits<int>::max(), -1}, lifetimes_.size() - 1});
  }

  std::size_t base_;
  std::vector<Space> spaces_;                     // by rising offset
  std::vector<std::vector<Lifetime>> lifetimes_;  // the lifetimes in each space, by rising time, without overlap
};

// True if the task uses data that the earlier task wrote.
bool follows(const Task& task, const Task& earlier) {
  return std::any_of(earlier.uses.begin(), earlier.uses.end(), [&](const Use& use) {
    const auto same = [&](const Use& other) { return other.buffer == use.buffer; };
    return use.access != Access::read && std::any_of(task.uses.begin(), task.uses.end(), same);
  });
}

}  // namespace

std::vector<Lifetime> lifetimes_of(const StepPlan& plan) {
  const int last = static_cast<int>(plan.tasks.size()) - 1;
  std::vector<Lifetime> lifetimes(plan.buffers.size(), Lifetime{last + 1, -1});
  for (int t = 0; t <= last; ++t)
    for (const Use& use : plan.tasks[static_cast<std::size_t>(t)].uses) {
      Lifetime& lifetime = lifetimes[static_cast<std::size_t>(use.buffer)];
      lifetime.first = std::min(lifetime.first, t);
      lifetime.last = std::max(lifetime.last, t);
    }
  for (std::size_t b = 0; b < lifetimes.size(); ++b)
    if (plan.buffers[b].persistent) lifetimes[b] = {0, last};
  return lifetimes;
}

std::vector<Lifetime> memory_lifetimes_of(const StepPlan& plan) {
  std::vector<Lifetime> lifetimes = lifetimes_of(plan);
  int call = 0;          // the newest task of the compute lane
  bool reached = false;  // the reduce lane has reached a task that depends on `call`
  for (int t = 0; t < static_cast<int>(plan.tasks.size()); ++t) {
    const Task& task = plan.tasks[static_cast<std::size_t>(t)];
    if (task.lane == LaneId::compute) {
      call = t;
      reached = false;
    }
    if (task.lane != LaneId::reduce) continue;
    reached = reached || follows(task, plan.tasks[static_cast<std::size_t>(call)]);
    if (reached) continue;
    for (const Use& use : task.uses) {
      Lifetime& lifetime = lifetimes[static_cast<std::size_t>(use.buffer)];
      lifetime.first = std::min(lifetime.first, call);
    }
  }
  return lifetimes;
}

// Buffers that live from step to step are placed first, one after another. The others go, largest first, to the
// lowest offset that is free throughout their lifetime. This is offline packing: for the stack-like lifetimes of a
// training step it is within a few percent of the lower bound.
void assign_offsets(StepPlan& plan, const StepPlan* memory_of) {
  const std::vector<Lifetime> lifetimes = memory_lifetimes_of(plan);
  std::array<std::size_t, kTiers> base{};
  std::vector<bool> shared(plan.buffers.size());
  if (memory_of) {
    for (const Buffer& buffer : memory_of->buffers)
      if (buffer.persistent) {
        std::size_t& end = base[static_cast<std::size_t>(buffer.tier)];
        end = std::max(end, buffer.offset + buffer.bytes);
      }
    const auto place = [&](int ours, int of_theirs) {
      STRATA_CHECK_EQ(ours < 0, of_theirs < 0);
      if (ours < 0) return;
      const auto b = static_cast<std::size_t>(ours);
      const Buffer& theirs = memory_of->buffers[static_cast<std::size_t>(of_theirs)];
      STRATA_CHECK_EQ(plan.buffers[b].bytes, theirs.bytes);
      STRATA_CHECK_EQ(static_cast<int>(plan.buffers[b].tier), static_cast<int>(theirs.tier));
      plan.buffers[b].offset = theirs.offset;
      shared[b] = true;
    };
    for (std::size_t unit = 0; unit < plan.state_buffers.size(); ++unit) {
      for (const PoolKind pool : kPools)
        place(plan.state_buffers[unit].of(pool), memory_of->state_buffers[unit].of(pool));
    }
  }
  std::vector<int> order;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    Buffer& buffer = plan.buffers[b];
    if (shared[b]) continue;
    if (!buffer.persistent) {
      order.push_back(static_cast<int>(b));
      continue;
    }
    std::size_t& end = base[static_cast<std::size_t>(buffer.tier)];
    buffer.offset = end;
    end += buffer.bytes;
  }
  const auto buffer_of = [&](int b) -> Buffer& { return plan.buffers[static_cast<std::size_t>(b)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return buffer_of(a).bytes > buffer_of(b).bytes; });

  std::vector<TierSpaces> tiers(base.begin(), base.end());
  for (const int b : order) {
    Buffer& buffer = buffer_of(b);
    buffer.offset =
        tiers[static_cast<std::size_t>(buffer.tier)].take(buffer.bytes, lifetimes[static_cast<std::size_t>(b)]);
  }
}

void predict_memory(StepPlan& plan) {
  plan.memory = {};
  const std::vector<Lifetime> lifetimes = lifetimes_of(plan);
  struct Change {
    int when;
    std::size_t buffer;
    bool starts;
  };
  std::vector<Change> changes;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    TierMemory& tier = plan.memory[static_cast<std::size_t>(buffer.tier)];
    tier.peak = std::max(tier.peak, buffer.offset + buffer.bytes);
    changes.push_back({lifetimes[b].first, b, true});
    changes.push_back({lifetimes[b].last + 1, b, false});
  }
  // At the same task, buffers end before others start.
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.when != b.when ? a.when < b.when : a.starts < b.starts; });
  std::array<std::array<std::size_t, kKinds>, kTiers> live{};
  for (const Change& change : changes) {
    const Buffer& buffer = plan.buffers[change.buffer];
    std::size_t& now = live[static_cast<std::size_t>(buffer.tier)][static_cast<std::size_t>(buffer.kind)];
    std::size_t& peak =
        plan.memory[static_cast<std::size_t>(buffer.tier)].by_kind[static_cast<std::size_t>(buffer.kind)];
    now += change.starts ? buffer.bytes : 0;
    now -= change.starts ? 0 : buffer.bytes;
    peak = std::max(peak, now);
  }
}

}  // namespace strata::runtime
