#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/control/control.pb.h"
#include "runtime/plan/plan.h"
#include "runtime/run/trainer.h"

namespace strata::launcher::control {

// A queue for one writer and one reader, neither of which ever waits: an item that finds no room is dropped. The run's
// threads report to the control plane through it, because they must not share a lock with it.
template <typename T, std::size_t N>
class Ring {
 public:
  void push(const T& item) {
    const std::size_t at = pushed_.load(std::memory_order_relaxed);
    if (at - popped_.load(std::memory_order_acquire) == N) return;
    items_[at % N] = item;
    pushed_.store(at + 1, std::memory_order_release);
  }
  std::optional<T> pop() {
    const std::size_t at = popped_.load(std::memory_order_relaxed);
    if (at == pushed_.load(std::memory_order_acquire)) return std::nullopt;
    std::optional<T> item = items_[at % N];
    popped_.store(at + 1, std::memory_order_release);
    return item;
  }

 private:
  std::array<T, N> items_{};
  alignas(64) std::atomic<std::size_t> pushed_{0};
  alignas(64) std::atomic<std::size_t> popped_{0};
};

namespace pb = strata::control::v1;

// Rank 0's view of the run, shared by the run's threads and the service's. The run posts without waiting and
// checks for requests; the service reads what collect() has taken from the queues.
class Board {
 public:
  // Called by the run's thread after a step.
  void post(const runtime::StepReport& report, const comm::CommBytes& sent, const runtime::Memory& measured);
  // Called by the checkpoint lane when a checkpoint is durable.
  void post_saved(std::int64_t step, std::string_view path);
  // The requests for the next step, as bits for Trainer::step(). Call this once before each step. Each request for a
  // checkpoint is returned only once.
  std::uint64_t take_requests();
  // Returns only the bits for ending the run. An evaluation that sees kStop ends immediately.
  std::uint64_t take_stop();

  // Everything below is for the service's threads. collect() takes the posted items from the queues.
  void collect();
  struct Stop {
    std::int64_t last = 0;  // the run ends after this step, or in an evaluation before it; 0: after its first step
    bool at_once = false;   // also false if the run has already seen an earlier request, which asked for a checkpoint
  };
  Stop request_stop(bool at_once);
  std::uint64_t stop_requested() const { return bits_of(stop_.load()); }
  void request_checkpoint() { checkpoint_requested_.store(true); }

  // Sets what stays the same from step to step. Call it before the service starts.
  void describe(const pb::RunInfo& run, std::int64_t max_steps, const runtime::Memory& planned, std::int64_t step);
  void describe(const pb::Plan& plan);
  void add_event(std::string text);
  void set_state(pb::State state);
  // The status without ranks, nodes and phases, which are filled in elsewhere.
  pb::Status status() const;
  pb::Plan plan() const;
  // The oldest known step after `step`. Only the newest 256 steps are kept.
  std::optional<pb::Step> step_after(std::int64_t step) const;
  std::int64_t steps_done() const;
  // The newest checkpoint that this run made durable, and the number of them.
  std::pair<pb::SavedCheckpoint, std::int64_t> saved() const;

 private:
  struct StepPost {
    runtime::StepReport report;
    double time;
    comm::CommBytes sent;
    std::array<std::uint64_t, runtime::kTiers> measured;
  };
  struct SavedPost {
    std::int64_t step;
    double time;
    std::array<char, 4096> path;
  };
  Ring<StepPost, 1024> steps_;
  Ring<SavedPost, 4> saves_;
  // A single atomic word (the flags, plus kTake for every call of take_requests()), so that it is unambiguous which
  // step sees a request.
  static constexpr std::uint64_t kRequested = 1, kAtOnce = 2, kSeen = 4, kTake = 8;
  static std::uint64_t bits_of(std::uint64_t word) {
    return ((word & kRequested) != 0 ? runtime::kStop : 0) | ((word & kAtOnce) != 0 ? runtime::kStopAtOnce : 0);
  }
  std::uint64_t see(std::uint64_t takes);
  std::atomic<std::uint64_t> stop_{0};
  std::atomic<bool> checkpoint_requested_{false};

  static constexpr std::size_t kSteps = 256, kEvents = 64;
  mutable std::mutex mutex_;  // taken by the service's threads only
  pb::Status status_;
  pb::Plan plan_;
  std::deque<pb::Step> newest_;
  std::int64_t checkpoints_ = 0;
  std::int64_t begins_after_ = 0;  // the step that the run resumed from
  Stop ends_;                      // the answer to the first request to stop
};

}  // namespace strata::launcher::control
