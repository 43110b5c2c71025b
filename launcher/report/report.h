#pragma once
// launcher/report/ makes pages for a browser: of a run (run_data.h) and of a plan (plan_data.h), each data that scripts
// draw (charts.js, timeline.js, report.js, plan.js), put together in one file; and the picture of `bench memory`
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

// `strata report`: what a run wrote about itself, as one page. Returns the exit code; throws Error.
int report(const ReportOptions& options);

// Which page is drawn: of a run, or of a plan.
enum class Page : std::uint8_t { run, plan };

// One HTML file that holds all it needs: styles, scripts, and `json` for them to draw.
std::string page_html(Page page, std::string_view json);

}  // namespace strata::launcher
