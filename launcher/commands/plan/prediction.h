#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json/json_writer.h"
#include "launcher/forecast.h"

namespace strata::launcher {

// The prediction that `plan --machine` adds.
struct Prediction {
  Forecast forecast;
  std::vector<Gain> gains;
  bool gpu;                      // the machine's ranks compute on GPUs
  int measured_ranks;            // ranks with which the machine file was measured
  bool measured;                 // false: computed from data sheets
  std::optional<double> spread;  // between the measurements
  std::string scaling;           // how speeds were scaled to this job's ranks; empty: they were not
};
// Looks for gains in the recipe as the user gave it. `stages`: as for forecast().
Prediction predict(const std::optional<std::filesystem::path>& recipe, const std::vector<std::string>& sets,
                   const runtime::Machine& machine, const runtime::Job& job, const runtime::Capacity& capacity,
                   int ranks_per_node, std::span<const SimulatedStage> stages);
// The step of a job without stages (docs/formats.md, "Traces"), at nominal speeds if there is no prediction.
std::string step_trace(const runtime::Job& job, const std::optional<Prediction>& prediction);
// Prints to stdout, for people.
void print_prediction(const Prediction& p);
// Members of plan --json.
JsonObject prediction_json(const Prediction& p, const runtime::StepPlan& plan);

}  // namespace strata::launcher
