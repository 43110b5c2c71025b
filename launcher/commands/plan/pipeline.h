#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json/json_writer.h"
#include "launcher/forecast.h"
#include "runtime/forecast/machine.h"
#include "runtime/job/make_job.h"

namespace strata::launcher {

// What the ranks of one stage of a pipeline do in a step, as the simulator runs all stages against each other.
struct PlannedStage {
  runtime::Job job;                       // that of the stage's first rank
  std::optional<double> step_ms;          // only with a machine file
  double idle_share;                      // the share of the step in which the compute lane has nothing to do
  std::vector<runtime::Span> spans = {};  // when its tasks run
};

// Plans every stage. Without a machine, idle shares come from nominal speeds. Throws what make_job throws.
std::vector<PlannedStage> plan_pipeline(const runtime::Workload& workload, int ranks, const runtime::Capacity& capacity,
                                        const std::optional<runtime::Machine>& machine, int ranks_per_node);
// The stage of a rank; if none is given, the one with the largest peak on the device.
std::size_t stage_of(const std::vector<PlannedStage>& stages, std::optional<int> rank);
// The stages as forecast() takes them, which points into `stages`.
std::vector<SimulatedStage> simulated(const std::vector<PlannedStage>& stages);
// A row per stage, and the split that would balance them better.
std::string pipeline_text(const std::vector<PlannedStage>& stages);
// The step of all stages (docs/formats.md, "Traces").
std::string pipeline_trace(const std::vector<PlannedStage>& stages);
// The table as a member of plan --json.
JsonArray pipeline_json(const std::vector<PlannedStage>& stages);

}  // namespace strata::launcher
