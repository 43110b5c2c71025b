#pragma once
// launcher/report/ makes pages for a browser: of a run (run_data.h) and of a plan (plan_data.h), each data that scripts
// draw (charts.js, report.js, plan.js), put together in one file (page.h).

#include <filesystem>

namespace strata::launcher {

struct ReportOptions {
  std::filesystem::path from;  // a report.dir, or a report.jsonl
  std::filesystem::path out;   // HTML
  bool force = false;
};

// `strata report`: what a run wrote about itself, as one page. Returns the exit code; throws Error.
int report(const ReportOptions& options);

}  // namespace strata::launcher
