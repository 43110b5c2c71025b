#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "runtime/forecast/machine.h"
#include "runtime/job/make_job.h"

namespace strata::launcher {

// What `plan --table` has of one setting of a recipe: its plan's memory, and with a machine file how long a step takes.
struct PlannedSetting {
  int stage;
  device::DType precision;
  runtime::Recompute recompute;
  bool vertical, fits;
  runtime::Memory memory;
  std::optional<double> step_ms, tokens_per_s;
};

// The recipe in each precision and with each recomputation, also of the blocks that it lists itself, and for several
// ranks at each ZeRO stage; nothing is run.
// What the recipe's other keys exclude is left out.
std::vector<PlannedSetting> plan_settings(const runtime::Workload& workload, int ranks,
                                          const runtime::Capacity& capacity,
                                          const std::optional<runtime::Machine>& machine, int ranks_per_node);
std::string settings_text(const std::vector<PlannedSetting>& settings);
// ,"table":[{"stage":0,"precision":"bf16",...}]
JsonArray settings_json(const std::vector<PlannedSetting>& settings);

}  // namespace strata::launcher
