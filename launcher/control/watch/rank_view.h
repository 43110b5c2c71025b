#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/control/control.pb.h"
#include "models/model.h"
#include "runtime/execute/places.h"

namespace strata::launcher::control {

namespace pb = strata::control::v1;

// What places are told by: names of the plan's tasks, their lanes, and which of them wait for other ranks.
struct TaskNames {
  struct Name {
    std::string text;
    runtime::LaneId lane;
    bool collective;
    int group_set = -1;  // in `group_sets`: the groups that it is of; -1: it is among all ranks, or none
  };
  std::vector<Name> tasks;
  std::vector<std::vector<std::vector<int>>> group_sets;  // of each, groups of ranks, rising

  TaskNames() = default;
  TaskNames(const runtime::StepPlan& plan, const models::Model& model);
  std::string_view text(int task) const;
  bool collective(int task) const;
  // The ranks, rising, that a rank waits for in a task; null: all, or none.
  const std::vector<int>* group(int task, int rank) const;
};

// Where one rank was when its node last told, as somebody else sees it. Seconds.
struct RankView {
  struct Lane {
    runtime::LanePlace place;
    double age = 0, typical = 0;
  };
  int rank = 0;
  runtime::Phase phase = runtime::Phase::starting;
  std::uint64_t counter = 0;
  double phase_age = 0;
  std::int64_t step = 0;  // done
  double compute = 0;     // of the newest step; 0: not known
  double beat_age = 0;    // since its process was seen to run
  int pid = 0;
  double typical_step = 0;  // what its steps take; 0: not known
  std::array<Lane, runtime::kLanes> lanes{};

  // Its main place: in a step the task that it runs and nobody else could end, else the one that it is in, else the
  // newest that it has done; outside of steps the phase. "'backward block 3' of step 120", "'loading weights'".
  std::string text(const TaskNames& names) const;
  // The lane of that place; -1: none.
  int main_lane(const TaskNames& names) const;
  // For how long it has been there: a lane's newest task may lie before what the rank did between two steps.
  double age(int lane) const {
    return lane < 0 ? phase_age : std::min(phase_age, lanes[static_cast<std::size_t>(lane)].age);
  }
};

// In ns of the steady clock at `now`, and back.
pb::RankReport report_of(int rank, const runtime::RankPlaces& places, std::int64_t now);
RankView view_of(const pb::RankReport& report);

}  // namespace strata::launcher::control
