#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "base/index.h"
#include "runtime/plan/proof/proof.h"

namespace strata::runtime {
namespace {

std::string text_of(const Task& task) {
  return fmt::format("{} of unit {}, micro-batch {}, lane {}", traits_of(task.kind).name, task.unit, task.micro_batch,
                     kLaneNames[static_cast<std::size_t>(task.lane)]);
}

// True if the sent and the received activation are the same: of the same micro-batch, and between the same two units.
bool are_neighbours(const Task& sent, const Task& received) {
  if (sent.micro_batch < 0) return sent.unit == received.unit;
  return received.unit == sent.unit + (sent.lane == LaneId::stage_backward ? -1 : 1);
}

std::optional<std::string> find_unpaired(std::span<const StepPlan* const> stages) {
  using Channel = std::tuple<int, int, LaneId>;  // from, to
  std::map<Channel, std::vector<const Task*>> sends, receives;
  for (const StepPlan* const plan : stages)
    for (const Task& task : plan->tasks) {
      if (!is_message(task.kind)) continue;
      if (task.peer < 0 || task.peer >= static_cast<int>(stages.size()) || task.peer == plan->stage)
        return fmt::format("stage {} has a {} with stage {} of {}", plan->stage, text_of(task), task.peer,
                           stages.size());
      if (sends_message(task.kind))
        sends[{plan->stage, task.peer, task.lane}].push_back(&task);
      else
        receives[{task.peer, plan->stage, task.lane}].push_back(&task);
    }
  for (const auto* ways : {&sends, &receives})
    for (const auto& [way, unused] : *ways) {
      const auto &sent = sends[way], &received = receives[way];
      const auto& [from, to, lane] = way;
      for (std::size_t n = 0; n < std::max(sent.size(), received.size()); ++n) {
        if (n >= sent.size() || n >= received.size())
          return fmt::format("stage {} sends {} messages to stage {}, which receives {}", from, sent.size(), to,
                             received.size());
        if (sent[n]->uses[0].bytes != received[n]->uses[0].bytes || sent[n]->micro_batch != received[n]->micro_batch ||
            sent[n]->when != received[n]->when || !are_neighbours(*sent[n], *received[n]))
          return fmt::format(
              "message {} from stage {} to stage {} is a {} of {} bytes where it is sent, but a {} of {} bytes where "
              "it is received",
              n, from, to, text_of(*sent[n]), sent[n]->uses[0].bytes, text_of(*received[n]),
              received[n]->uses[0].bytes);
      }
    }
  return std::nullopt;
}

// Two consecutive steps of a stage, whose lanes run in order.
class Lanes {
 public:
  explicit Lanes(const StepPlan& plan) : plan_(plan), n_(plan.tasks.size()), done_(2 * n_) {
    std::size_t hosts = 0;
    for (std::size_t t = 0; t < done_.size(); ++t) {
      hosts_before_.push_back(hosts);
      if (task(t).when == When::checkpoint) continue;
      queues_[static_cast<std::size_t>(task(t).lane)].push_back(t);
      hosts += task(t).lane == LaneId::host ? 1 : 0;
    }
  }

  // The lane's next task if nothing in this stage holds it back; null: none.
  const Task* ready(std::size_t lane) const {
    if (next_[lane] == queues_[lane].size()) return nullptr;
    const std::size_t t = queues_[lane][next_[lane]];
    if (hosts_done_ < hosts_before_[t]) return nullptr;
    for (const int wait : task(t).waits) {
      if (plan_.tasks[index(wait)].when == When::checkpoint) continue;
      const std::size_t step = t / n_;
      if (index(wait) < t % n_ ? !done_[step * n_ + index(wait)] : step > 0 && !done_[index(wait)]) return nullptr;
    }
    return &task(t);
  }
  void end(std::size_t lane) {
    const std::size_t t = queues_[lane][next_[lane]++];
    done_[t] = true;
    hosts_done_ += task(t).lane == LaneId::host ? 1 : 0;
  }
  // The first task that has not ended; null: none.
  const Task* left() const {
    for (std::size_t t = 0; t < done_.size(); ++t)
      if (!done_[t] && task(t).when != When::checkpoint) return &task(t);
    return nullptr;
  }

 private:
  const Task& task(std::size_t t) const { return plan_.tasks[t % n_]; }

  const StepPlan& plan_;
  const std::size_t n_;
  std::vector<bool> done_;
  std::vector<std::size_t> hosts_before_;  // host tasks listed before each run
  std::array<std::vector<std::size_t>, kLanes> queues_;
  std::array<std::size_t, kLanes> next_{};
  std::size_t hosts_done_ = 0;
};

std::optional<std::string> find_deadlock(std::span<const StepPlan* const> stages) {
  std::vector<Lanes> all;
  for (const StepPlan* const plan : stages) all.emplace_back(*plan);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < all.size(); ++s)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        while (const Task* const task = all[s].ready(lane)) {
          if (is_message(task->kind)) {
            Lanes& peer = all[index(task->peer)];
            const Task* const other = peer.ready(lane);
            if (!other || !is_message(other->kind) || other->kind == task->kind || other->peer != stages[s]->stage)
              break;
            peer.end(lane);
          }
          all[s].end(lane);
          moved = true;
        }
  }
  for (std::size_t s = 0; s < all.size(); ++s)
    if (const Task* const task = all[s].left())
      return fmt::format("stage {} never gets past its {}", stages[s]->stage, text_of(*task));
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_mismatch(std::span<const StepPlan* const> stages) {
  if (auto unpaired = find_unpaired(stages)) return unpaired;
  return find_deadlock(stages);
}

}  // namespace strata::runtime
