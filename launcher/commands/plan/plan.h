#pragma once
// launcher/commands/plan/ is `strata plan`: the plan of one recipe as a table, JSON, trace or page (here), a comparison
// of the ZeRO stages (stages.h), and one of other settings (settings.h).
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

struct PlanOptions {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  std::optional<int> ranks;           // default: as many as mpirun started, else 1
  std::optional<int> rank;            // whose plan; default: that of the stage with the largest device peak
  std::optional<int> ranks_per_node;  // default: all, up to the cores or GPUs of this machine
  std::optional<std::filesystem::path> json, trace, machine;
  std::optional<std::filesystem::path> html;
  bool stages = false;     // also a table of ZeRO stages 0 to 3
  bool table = false;      // also a table of precisions, recomputation and stages
  bool max_batch = false;  // plan for the largest micro-batch that fits, whatever the recipe says
  bool verbose = false;    // also how many tasks of each kind a step has
  bool force = false;      // overwrites json, trace and html, whatever they are
};

// `strata plan`: shows what a run over `ranks` ranks will do and need, without running anything. With a machine file
// also how long a step takes, what bounds it, and what would help. Returns the exit code; throws Error.
int plan(const PlanOptions& options);

}  // namespace strata::launcher
