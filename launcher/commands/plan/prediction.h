#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "launcher/forecast.h"

namespace strata::launcher {

// What `plan --machine` adds.
struct Prediction {
  Forecast forecast;
  std::vector<Gain> gains;
  bool gpu;                      // the machine's ranks compute on GPUs
  int measured_ranks;            // that the machine file is of
  bool measured;                 // or computed from data sheets
  std::optional<double> spread;  // of what was measured
  std::string scaling;           // what was done to its speeds for this job's ranks; empty: nothing
};
// Gains are looked for in the recipe as it was given.
Prediction predict(const std::optional<std::filesystem::path>& recipe, const std::vector<std::string>& sets,
                   const runtime::Machine& machine, const runtime::Job& job, const runtime::Capacity& capacity,
                   int ranks_per_node);
// On stdout, for people.
void print_prediction(const Prediction& p);
// Members of plan --json.
JsonObject prediction_json(const Prediction& p, const runtime::StepPlan& plan);

}  // namespace strata::launcher
