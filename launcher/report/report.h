#pragma once
// launcher/report/ makes pages for a browser, of a run and of a plan: data (run_data.cc, plan_data.cc) and the scripts
// that draw them (charts.js, timeline.js, report.js, plan.js) in one file.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/forecast/simulator.h"
#include "runtime/job/make_job.h"
#include "runtime/plan/plan.h"

namespace strata::launcher {

struct ReportOptions {
  std::filesystem::path from;  // a report.dir, or a report.jsonl
  std::filesystem::path out;   // HTML
  bool force = false;
};

// `strata report`: makes one page of a run's reports. Returns the exit code; throws Error.
int report(const ReportOptions& options);

// The page to draw: a run's or a plan's.
enum class Page : std::uint8_t { run, plan };

// One self-contained HTML file: styles, scripts, and the `json` that they draw.
std::string page_html(Page page, std::string_view json);

// The files that a run left; a path is empty if there is no such file.
struct RunFiles {
  std::filesystem::path steps, events, summary, plan, trace, recipe;
};
// The files in a report.dir, or next to its report.jsonl; any other .jsonl is used alone. Throws Error{usage} if there
// are none.
RunFiles files_of_run(const std::filesystem::path& from);

// The data of a run's page as JSON. If there are more than `most` steps, it keeps the last step and the steps with the
// smallest or largest loss nearby. A part whose file is truncated or damaged is left out, and a note says why. If
// nothing is left, throws Error{corrupt} that names file and line.
std::string run_data(const RunFiles& files, std::size_t most = 4000);

// A plan as the pages draw it, and as a run writes it to plan.json in report.dir (docs/formats.md): tasks with lane,
// name, simulated times and waits; buffers with place and lifetime; memory by kind; where the step's time goes. speeds:
// a sentence on what the times are based on.
std::string plan_data(const runtime::Job& job, const runtime::Capacity& capacity,
                      const runtime::MachineProfile& profile, std::span<const runtime::Span> spans,
                      const std::string& speeds);

// A page's sentence about its times: "Simulated with the speeds of a machine file".
std::string speeds_text(bool machine_file, bool measured);

}  // namespace strata::launcher
