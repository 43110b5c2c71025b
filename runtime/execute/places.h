#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// What a rank does, in a step or outside.
enum class Phase : std::uint32_t { starting, planning, hashing, loading, training, evaluating, writing, ending };
inline constexpr std::array<const char*, 8> kPhaseNames = {
    "starting", "planning", "hashing files", "loading weights", "training", "evaluating", "writing reports", "ending"};

// Where a lane is: the newest task that it began, and whether it is still in it. One number, so that whoever reads it
// sees both of the same moment.
struct LanePlace {
  std::int64_t step = 0;
  int task = -1;  // index in the plan; -1: none yet
  bool running = false;
  bool operator==(const LanePlace&) const = default;
};
constexpr std::uint64_t packed(const LanePlace& place) {
  return static_cast<std::uint64_t>(place.step) << 32 | static_cast<std::uint64_t>(place.task + 1) << 1 |
         (place.running ? 1 : 0);
}
constexpr LanePlace unpacked(std::uint64_t word) {
  return {static_cast<std::int64_t>(word >> 32), static_cast<int>(word >> 1 & 0x7fff'ffff) - 1, (word & 1) != 0};
}

// Where one rank is, for those who look on: other threads, and other processes that map the memory. Its lanes and its
// issuing thread write it by relaxed stores, which cost nothing and order nothing: a reader may see one lane further
// ahead of another than it ever was. Times are ns of the steady clock. Lives in zeroed memory.
struct RankPlaces {
  struct alignas(64) OfLane {
    std::atomic<std::uint64_t> place{0};   // LanePlace, packed
    std::atomic<std::int64_t> since{0};    // that the place began
    std::atomic<std::int64_t> typical{0};  // what the task it is in takes, about: its median; 0: not known
  };
  struct Done {  // a task that has run
    std::atomic<std::uint64_t> place{0};
    std::atomic<std::uint32_t> lane{0};
    std::atomic<std::int64_t> begin{0}, end{0};
  };
  static constexpr std::size_t kDone = 64;

  alignas(64) std::atomic<Phase> phase{Phase::starting};
  std::atomic<std::uint64_t> counter{0};  // of the phase: what it has done, in units of its own
  std::atomic<std::int64_t> phase_since{0};
  std::atomic<std::int64_t> step{0};     // steps done
  std::atomic<std::int64_t> typical{0};  // ns that a step takes, about: its median; 0: not known
  std::atomic<std::int64_t> compute{0};  // ns of lane compute in the newest step; 0: not known
  std::atomic<std::int64_t> beat{0};     // when its process was last seen to run, by a thread beside the run
  std::atomic<std::int32_t> pid{0};
  std::array<OfLane, kLanes> lanes;
  alignas(64) std::atomic<std::uint64_t> done_count{0};  // the newest is done[(done_count - 1) % kDone]
  std::array<Done, kDone> done;

  void enter(Phase phase);
  // Of the phase; from any thread.
  void count(std::uint64_t n = 1) { counter.fetch_add(n, std::memory_order_relaxed); }
};

// Writes a rank's places for its executor. Each lane calls begin() and end() of its own tasks, in order.
class PlaceKeeper {
 public:
  // Steps are counted from 0 here, and `first` were done before.
  PlaceKeeper(const StepPlan& plan, RankPlaces& places, std::int64_t first);

  // In the lane, at the time `now`.
  void begin(std::size_t task, std::int64_t step, std::int64_t now);
  void end(std::size_t task, std::int64_t step, std::int64_t now);
  // By the issuing thread, for a lane whose work is the device's: that the task was given to it.
  void issued(std::size_t task, std::int64_t step, std::int64_t now);
  // By the issuing thread, once the host has read what came of the step.
  void stepped();

 private:
  RankPlaces::OfLane& lane_of(std::size_t task);

  const StepPlan& plan_;
  RankPlaces& places_;
  std::int64_t first_, host_wrote_ = 0;
  std::vector<std::int64_t> typical_;  // by task; each is touched by its lane alone
  std::int64_t typical_step_ = 0;
  std::atomic<std::int64_t> compute_{0};
};

}  // namespace strata::runtime
