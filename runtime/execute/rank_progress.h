#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// The phase of a rank, inside or outside of steps.
enum class Phase : std::uint32_t { starting, planning, hashing, loading, training, evaluating, writing, ending };
inline constexpr std::array<const char*, 8> kPhaseNames = {
    "starting", "planning", "hashing files", "loading weights", "training", "evaluating", "writing reports", "ending"};

// The position of a lane: the newest task that it began, and whether that is still running. Packed into one number, so
// that a reader sees both at the same moment.
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

// The progress of one rank, for observers: other threads, and other processes that map the memory. The rank's lanes and
// its issuing thread write it with relaxed stores, which cost nothing but are not ordered: a reader may see one lane
// further ahead of another than it ever was. Times are in ns of the steady clock. Its memory must be zeroed.
struct RankProgress {
  struct alignas(64) OfLane {
    std::atomic<std::uint64_t> place{0};   // a packed LanePlace
    std::atomic<std::int64_t> since{0};    // when the place was entered
    std::atomic<std::int64_t> typical{0};  // about the median time of the task, in ns; 0: unknown
  };
  struct Done {  // a task that has run
    std::atomic<std::uint64_t> place{0};
    std::atomic<std::uint32_t> lane{0};
    std::atomic<std::int64_t> begin{0}, end{0};
  };
  static constexpr std::size_t kDone = 64;

  alignas(64) std::atomic<Phase> phase{Phase::starting};
  std::atomic<std::uint64_t> counter{0};  // progress within the phase, in units that the phase defines
  std::atomic<std::int64_t> phase_since{0};
  std::atomic<std::int64_t> step{0};     // steps done
  std::atomic<std::int64_t> typical{0};  // about the median time of a step, in ns; 0: unknown
  std::atomic<std::int64_t> compute{0};  // ns that lane compute was busy in the newest step; 0: unknown
  std::atomic<std::int64_t> beat{0};     // when the process last ran, written by a separate thread
  std::atomic<std::int32_t> pid{0};
  std::array<OfLane, kLanes> lanes;
  alignas(64) std::atomic<std::uint64_t> done_count{0};  // the newest is done[(done_count - 1) % kDone]
  std::array<Done, kDone> done;

  void enter(Phase phase);
  // Adds to the phase's counter. Any thread may call it.
  void count(std::uint64_t n = 1) { counter.fetch_add(n, std::memory_order_relaxed); }
};

// Writes a rank's progress for its executor. Each lane calls begin() and end() of its own tasks, in order.
class ProgressPublisher {
 public:
  // Numbers its steps from 0; `first` steps were done in earlier runs.
  ProgressPublisher(const StepPlan& plan, RankProgress& progress, std::int64_t first);

  // The lane calls these as the task begins and ends, at time `now`.
  void begin(std::size_t task, std::int64_t step, std::int64_t now);
  void end(std::size_t task, std::int64_t step, std::int64_t now);
  // The issuing thread calls this when it has queued a task of a device lane.
  void issued(std::size_t task, std::int64_t step, std::int64_t now);
  // The issuing thread calls this when the host has read the step's results.
  void stepped();

 private:
  RankProgress::OfLane& lane_of(std::size_t task);

  const StepPlan& plan_;
  RankProgress& progress_;
  std::int64_t first_, host_wrote_ = 0;
  std::vector<std::int64_t> typical_;  // one per task; only the task's lane accesses its entry
  std::int64_t typical_step_ = 0;
  std::atomic<std::int64_t> compute_{0};
};

}  // namespace strata::runtime
