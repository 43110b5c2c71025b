#include <algorithm>
#include <numeric>

#include "runtime/planner.h"

namespace strata::runtime {
namespace {

// Placed buffers, found by time: each is listed in every stretch of kStretch tasks that it lives in.
class Timeline {
 public:
  explicit Timeline(std::size_t tasks) : stretches_(tasks / kStretch + 1) {}

  void add(int buffer, const Lifetime& life) {
    for (int s = life.first / kStretch; s <= life.last / kStretch; ++s) stretches_[index(s)].push_back(buffer);
  }
  // Buffers whose stretches touch `life`, without repetition.
  void near(const Lifetime& life, std::vector<int>& out) const {
    out.clear();
    for (int s = life.first / kStretch; s <= life.last / kStretch; ++s)
      out.insert(out.end(), stretches_[index(s)].begin(), stretches_[index(s)].end());
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
  }

 private:
  static constexpr int kStretch = 32;
  static std::size_t index(int s) { return static_cast<std::size_t>(s); }
  std::vector<std::vector<int>> stretches_;
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
  const auto life_of = [&](int b) -> const Lifetime& { return lives[static_cast<std::size_t>(b)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return buffer_of(a).bytes > buffer_of(b).bytes; });

  Timeline timeline(plan.tasks.size());
  std::vector<int> near;
  for (const int b : order) {
    Buffer& buffer = buffer_of(b);
    const Lifetime& life = life_of(b);
    timeline.near(life, near);
    std::erase_if(near, [&](int other) {
      const Lifetime& o = life_of(other);
      return o.last < life.first || o.first > life.last || buffer_of(other).tier != buffer.tier;
    });
    std::sort(near.begin(), near.end(), [&](int x, int y) { return buffer_of(x).offset < buffer_of(y).offset; });
    std::size_t offset = base[static_cast<std::size_t>(buffer.tier)];
    for (const int other : near) {
      const Buffer& o = buffer_of(other);
      if (offset + buffer.bytes <= o.offset) break;
      offset = std::max(offset, o.offset + o.bytes);
    }
    buffer.offset = offset;
    timeline.add(b, life);
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
