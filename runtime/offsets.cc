#include <algorithm>
#include <vector>

#include "runtime/planner.h"

namespace strata::runtime {
namespace {

// A buffer that has its place.
struct Placed {
  std::size_t begin, end;  // bytes
  Lifetime life;
};

}  // namespace

std::vector<Lifetime> lifetimes_of(const StepPlan& plan) {
  const int last = static_cast<int>(plan.tasks.size()) - 1;
  std::vector<Lifetime> lives(plan.buffers.size(), Lifetime{last + 1, -1});
  for (int t = 0; t <= last; ++t)
    for (const Use& use : plan.tasks[static_cast<std::size_t>(t)].uses) {
      Lifetime& life = lives[static_cast<std::size_t>(use.buffer)];
      life.first = std::min(life.first, t);
      life.last = std::max(life.last, t);
    }
  for (std::size_t b = 0; b < lives.size(); ++b)
    if (plan.buffers[b].whole_cycle) lives[b] = {0, last};
  return lives;
}

// Buffers that live from step to step come first, one behind the other. The others go, largest first, to the lowest
// offset at which nothing lives at the same time: offline packing, within a few percent of the lower bound for the
// stack-like lifetimes of a training step.
void assign_offsets(StepPlan& plan) {
  const std::vector<Lifetime> lives = lifetimes_of(plan);
  std::array<std::size_t, kTiers> base{};
  std::vector<int> order;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    Buffer& buffer = plan.buffers[b];
    if (!buffer.whole_cycle) {
      order.push_back(static_cast<int>(b));
      continue;
    }
    std::size_t& end = base[static_cast<std::size_t>(buffer.tier)];
    buffer.offset = end;
    end += buffer.bytes;
  }
  const auto buffer_of = [&](int b) -> Buffer& { return plan.buffers[static_cast<std::size_t>(b)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return buffer_of(a).bytes > buffer_of(b).bytes; });

  std::array<std::vector<Placed>, kTiers> placed;  // by rising offset
  for (const int b : order) {
    Buffer& buffer = buffer_of(b);
    const Lifetime& life = lives[static_cast<std::size_t>(b)];
    auto& others = placed[static_cast<std::size_t>(buffer.tier)];
    std::size_t offset = base[static_cast<std::size_t>(buffer.tier)];
    for (const Placed& other : others) {
      if (other.life.last < life.first || other.life.first > life.last) continue;
      if (offset + buffer.bytes <= other.begin) break;
      offset = std::max(offset, other.end);
    }
    buffer.offset = offset;
    const Placed mine{offset, offset + buffer.bytes, life};
    others.insert(std::upper_bound(others.begin(), others.end(), mine,
                                   [](const Placed& x, const Placed& y) { return x.begin < y.begin; }),
                  mine);
  }
}

void predict_memory(StepPlan& plan) {
  plan.memory = {};
  const std::vector<Lifetime> lives = lifetimes_of(plan);
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
    changes.push_back({lives[b].first, b, true});
    changes.push_back({lives[b].last + 1, b, false});
  }
  // At one instant what ends goes before what starts.
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
