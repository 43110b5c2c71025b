#pragma once
// launcher/report/ makes pages for a browser, of a run (run_data.h) and of a plan (plan_data.h): data and the scripts
// that draw them (charts.js, timeline.js, report.js, plan.js) in one file. It also draws the picture of `bench memory`
// (memory_chart.h).
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace strata::launcher {

struct ReportOptions {
  std::filesystem::path from;  // a report.dir, or a report.jsonl
  std::filesystem::path out;   // HTML
  bool force = false;
};

// `strata report`: makes one page of what a run wrote about itself. Returns the exit code; throws Error.
int report(const ReportOptions& options);

// The page to draw: a run's or a plan's.
enum class Page : std::uint8_t { run, plan };

// One self-contained HTML file: styles, scripts, and the `json` that they draw.
std::string page_html(Page page, std::string_view json);

}  // namespace strata::launcher
