#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"
#include "runtime/run/reports/event_file.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/reports/report_file.h"

namespace strata::runtime {

// What report.dir holds beside the reports that have keys of their own.
inline constexpr std::string_view kRecipeReport = "recipe.toml", kEventsReport = "events.jsonl",
                                  kPlanReport = "plan.json";

// Everything that a run writes about itself, as its recipe's report.* say; of rank 0. Opened once all else is known to
// be there: a run that is refused leaves what was there before. Throws Error{failed} naming the path.
class RunReports {
 public:
  // Reports of a run that goes on keep what is `kept`. Throws Error{usage} if another run writes to one of them.
  RunReports(const Recipe& recipe, const std::optional<KeptLines>& kept);

  // `measured`: peaks until now.
  void step(const StepReport& report, const Memory& measured);
  // An evaluation after that step.
  void evaluation(const EvaluationReport& report);
  // Into report.dir's events.jsonl: what happened, after which step, and figures (JSON) under their names.
  void event(std::string_view what, std::int64_t step,
             const std::vector<std::pair<std::string_view, std::string>>& figures = {});

  // Written at the end, by whoever knows what.
  std::optional<ReportFile> summary, trace;

  // Of the steps and events: what the system has kept back goes to the disk.
  void close();

 private:
  std::optional<ReportFile> jsonl_, csv_, events_;
  std::optional<EventFile> tensorboard_;
};

}  // namespace strata::runtime
