#pragma once
// launcher/report/ makes pages for a browser, of a run and of a plan: the data (run_data.cc, plan_data.cc), and the
// scripts that draw it (charts.js, timeline.js, report.js, plan.js), in one file.
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

// `strata report`: makes one page from a run's reports. Returns the exit code; throws Error.
int report(const ReportOptions& options);

// The page to draw: that of a run or of a plan.
enum class Page : std::uint8_t { run, plan };

// One self-contained HTML file with styles, scripts, and the `json` that they draw.
std::string page_html(Page page, std::string_view json);

// The files that a run left; a path is empty if the file does not exist.
struct RunFiles {
  std::filesystem::path steps, events, summary, plan, trace, recipe;
};
// The files in a report.dir, or next to its report.jsonl. Any other .jsonl file is used alone. Throws Error{usage} if
// there are none.
RunFiles files_of_run(const std::filesystem::path& from);

// The data of a run's page as JSON. If there are more than `most` steps, keeps the last step and, of each group of
// neighbouring steps, those with the smallest and the largest loss. A part whose file is truncated or damaged is left
// out, and a note says why. Throws Error{corrupt} that names file and line if nothing is left.
std::string run_data(const RunFiles& files, std::size_t most = 4000);

// A plan as the pages draw it, and as a run writes it to plan.json in report.dir (docs/formats.md): tasks with lane,
// name, simulated times and waits; buffers with place and lifetime; memory by kind; where the step's time goes. speeds:
// a sentence that says what the times are based on.
std::string plan_data(const runtime::Job& job, const runtime::Capacity& capacity,
                      const runtime::MachineProfile& profile, std::span<const runtime::Span> spans,
                      const std::string& speeds);

// The sentence on a page about its times: "Simulated with the speeds of a machine file".
std::string speeds_text(bool machine_file, bool measured);

}  // namespace strata::launcher
