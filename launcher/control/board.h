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

// A queue of one writer and one reader that makes neither wait: what finds no room is dropped. How the run's threads
// tell this plane's: those of the run share no lock with anyone.
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

// What is known of the run at rank 0, between the run's threads and those of the service. The run posts, without ever
// waiting, and looks whether something was asked of it; the service reads what collect() has taken in.
class Board {
 public:
  // The run's thread, after a step.
  void post(const runtime::StepReport& report, const comm::CommBytes& sent, const runtime::Memory& measured);
  // The lane of checkpoints, once one is durable.
  void post_saved(std::int64_t step, std::string_view path);
  // What the next step is to end with: bits for Trainer::step(). Once before each step. Asking for a checkpoint is
  // taken: it is not told twice.
  std::uint64_t take_requests();
  // Of these bits, how the run is to end, which an evaluation that sees kStop does at once.
  std::uint64_t take_stop();

  // The service's threads, from here on.
  // Takes in what was posted.
  void collect();
  struct Stop {
    std::int64_t last = 0;  // the step that the run ends after, unless an evaluation before it sees the request; 0: the
                            // first one that it makes
    bool at_once = false;   // false, too, if the run has taken an earlier request, which asked for a checkpoint
  };
  Stop ask_stop(bool at_once);
  std::uint64_t stop_asked() const { return bits_of(stop_.load()); }
  void ask_checkpoint() { checkpoint_asked_.store(true); }

  // With what does not change from step to step; before the service is there.
  void describe(const pb::RunInfo& run, std::int64_t max_steps, const runtime::Memory& planned, std::int64_t step);
  void describe(const pb::Plan& plan);
  void add_event(std::string text);
  void set_state(pb::State state);
  // The status but for ranks, nodes and phases, which others know.
  pb::Status status() const;
  pb::Plan plan() const;
  // Steps behind `step`, the oldest first; of the newest 256 alone.
  std::optional<pb::Step> step_after(std::int64_t step) const;
  std::int64_t steps_done() const;
  // The newest checkpoint that this run made durable, and how many it did.
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
  // In one word, so that it is known which step sees a request: flags, and kTake for each time that it was taken.
  static constexpr std::uint64_t kAsked = 1, kAtOnce = 2, kSeen = 4, kTake = 8;
  static std::uint64_t bits_of(std::uint64_t word) {
    return ((word & kAsked) != 0 ? runtime::kStop : 0) | ((word & kAtOnce) != 0 ? runtime::kStopAtOnce : 0);
  }
  std::uint64_t see(std::uint64_t takes);
  std::atomic<std::uint64_t> stop_{0};
  std::atomic<bool> checkpoint_asked_{false};

  static constexpr std::size_t kSteps = 256, kEvents = 64;
  mutable std::mutex mutex_;  // among the service's threads
  pb::Status status_;
  pb::Plan plan_;
  std::deque<pb::Step> newest_;
  std::int64_t checkpoints_ = 0;
  std::int64_t begins_after_ = 0;  // the step that the run goes on from
  Stop ends_;                      // as was answered
};

}  // namespace strata::launcher::control
