#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json/json_writer.h"
#include "runtime/forecast/machine.h"
#include "runtime/job/make_job.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// The memory and time that the recipe needs at one ZeRO stage.
struct Stage {
  runtime::Job job;
  bool fits;
  std::optional<double> step_ms;  // only with a machine file
  std::string groups = {};  // key of zero.*_group that is "node" here, without "zero."; empty: the recipe's groups
};

// Plans stages 0 to 3 for a number of ranks. Throws what make_job throws.
std::vector<Stage> plan_stages(const runtime::Workload& workload, int ranks, const runtime::Capacity& capacity,
                               const std::optional<runtime::Machine>& machine, int ranks_per_node);
// Adds stages with state in groups, if there are several nodes with several ranks each: a node's ranks together hold
// the parameters, or everything that the stage shards. Adds nothing if the recipe sets groups itself.
void add_group_stages(std::vector<Stage>& stages, const runtime::Workload& workload, int ranks,
                      const runtime::Capacity& capacity, const std::optional<runtime::Machine>& machine,
                      int ranks_per_node);
// Prints one row per stage next to the ZeRO paper's arithmetic (Rajbhandari et al. 2020), with footnotes, to stdout.
void print_stages(const std::vector<Stage>& stages);
// The same as a member of plan --json.
JsonArray stages_json(const std::vector<Stage>& stages);

}  // namespace strata::launcher
