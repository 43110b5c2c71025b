#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json/json_writer.h"
#include "runtime/forecast/machine.h"
#include "runtime/job/make_job.h"

namespace strata::launcher {

// A row of `plan --table`: one setting of a recipe, the memory of its plan, and with a machine file the time of a step.
struct PlannedSetting {
  int stage;
  device::DType precision;
  runtime::Recompute recompute;
  bool vertical, fits;
  runtime::Memory memory;
  std::optional<double> step_ms, tokens_per_s;
};

// Plans the recipe in each precision and with each recomputation, including the blocks that it lists itself, and with
// several ranks at each ZeRO stage. Skips settings that the recipe's other keys exclude. Runs nothing.
std::vector<PlannedSetting> plan_settings(const runtime::Workload& workload, int ranks,
                                          const runtime::Capacity& capacity,
                                          const std::optional<runtime::Machine>& machine, int ranks_per_node);
std::string settings_text(const std::vector<PlannedSetting>& settings);
// ,"table":[{"stage":0,"precision":"bf16",...}]
JsonArray settings_json(const std::vector<PlannedSetting>& settings);

}  // namespace strata::launcher
