#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/reports/report_file.h"

namespace strata::runtime {

// Files in report.dir in addition to the reports that have their own keys.
inline constexpr std::string_view kRecipeReport = "recipe.toml", kEventsReport = "events.jsonl",
                                  kPlanReport = "plan.json";

// Everything that a run writes about itself, as report.* in its recipe says; only on rank 0. It is opened after all
// other checks, so that a refused run does not change earlier reports. Throws Error{failed} with the path.
class RunReports {
 public:
  // `recipe`: Workload::complete_recipe(), which report.dir holds, too. A resumed run keeps the lines in `kept`. Throws
  // Error{usage} if another run writes to one of the reports.
  RunReports(const Recipe& recipe, const std::optional<KeptLines>& kept);

  // `measured`: peaks so far.
  void step(const StepReport& report, const Memory& measured);
  // An evaluation after the last step.
  void evaluation(const EvaluationReport& report);
  // Adds a line to events.jsonl in report.dir: what happened, after which step, and figures (JSON) under their names.
  void event(std::string_view what, std::int64_t step,
             const std::vector<std::pair<std::string_view, std::string>>& figures = {});

  // Written at the end by the code that knows their content.
  std::optional<ReportFile> summary, trace;

  // Flushes steps and events to the disk.
  void close();

 private:
  std::optional<ReportFile> jsonl_, csv_, events_;
  std::optional<EventFile> tensorboard_;
};

}  // namespace strata::runtime
