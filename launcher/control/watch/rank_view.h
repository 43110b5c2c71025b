#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "launcher/control/control.pb.h"
#include "models/model.h"
#include "runtime/execute/rank_progress.h"

namespace strata::launcher::control {

namespace pb = strata::control::v1;

// The names of the plans' tasks, their lanes, and which of them wait for other ranks, for describing places. The stages
// of a pipeline have different plans, so a task's number is valid only for the ranks of its stage.
struct TaskNames {
  struct Name {
    std::string text;
    runtime::LaneId lane;
    bool collective;
    int group_set = -1;  // index into `group_sets`; -1: all ranks take part, or only one
  };
  std::vector<std::vector<Name>> stages = {{}};           // per pipeline stage and task
  std::vector<std::vector<std::vector<int>>> group_sets;  // each set's groups of ranks, in ascending order
  runtime::Mesh mesh{1};

  TaskNames() = default;
  // Collective: stages exchange the names of their tasks.
  TaskNames(const runtime::StepPlan& plan, const models::Model& model, comm::World& world);
  // Null if the rank's stage has no such task.
  const Name* find(int task, int rank) const;
  std::string_view text(int task, int rank) const;
  bool collective(int task, int rank) const;
  // The ranks that a rank waits for in a task, in ascending order; null if it waits for all ranks or for none.
  const std::vector<int>* group(int task, int rank) const;
};

// The place of a rank when its node last reported, as seen by others. Times are in seconds.
struct RankView {
  struct Lane {
    runtime::LanePlace place;
    double age = 0, typical = 0;
  };
  int rank = 0;
  runtime::Phase phase = runtime::Phase::starting;
  std::uint64_t counter = 0;
  double phase_age = 0;
  std::int64_t step = 0;  // steps done
  double compute = 0;     // during the newest step; 0: not known
  double beat_age = 0;    // since its process was last seen to run
  int pid = 0;
  double typical_step = 0;  // typical time of its steps; 0: not known
  std::array<Lane, runtime::kLanes> lanes{};

  // The rank's main place. In a step: the running task that depends on no other rank, otherwise another running task,
  // otherwise the newest finished one. Outside steps: the phase. For example "'backward block 3' of step 120" or
  // "'loading weights'".
  std::string text(const TaskNames& names) const;
  // The lane of the main place; -1 if there is none.
  int main_lane(const TaskNames& names) const;
  // How long the rank has been in its place. A lane's newest task may be older than the rank's phase, so the smaller
  // age counts.
  double age(int lane) const {
    return lane < 0 ? phase_age : std::min(phase_age, lanes[static_cast<std::size_t>(lane)].age);
  }
};

// Converts progress, with times in ns on the steady clock, to a report at `now`, and a report to a view.
pb::RankReport report_of(int rank, const runtime::RankProgress& progress, std::int64_t now);
RankView view_of(const pb::RankReport& report);

}  // namespace strata::launcher::control
