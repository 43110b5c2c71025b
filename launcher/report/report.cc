#include "launcher/report/report.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/quantity.h"
#include "launcher/outputs.h"
#include "launcher/report/pages.h"  // made by embed.cmake from the files next to this one
#include "launcher/screen/printable.h"

namespace strata::launcher {
namespace {

void replace(std::string& text, std::string_view mark, std::string_view by) {
  const std::size_t at = text.find(mark);
  STRATA_CHECK(at != std::string::npos);
  text.replace(at, mark.size(), by);
}

// Escapes JSON for a script element: a sequence that would end the element is written in another way with the same
// meaning.
std::string within_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

}  // namespace

int report(const ReportOptions& options) {
  const RunFiles files = files_of_run(options.from);
  std::vector<NamedFile> inputs;
  for (const auto& path : {files.steps, files.events, files.summary, files.plan, files.trace, files.recipe})
    if (!path.empty()) inputs.push_back({"report", path});
  require_apart({{"--out", options.out}}, inputs);
  require_own({"--out", options.out}, Content::page, options.force);
  const std::string text = page_html(Page::run, run_data(files));
  AtomicFile file(options.out);
  file.write(text);
  file.commit();
  say("{} written: {}", options.out.string(), bytes_text(text.size()));
  return 0;
}

std::string page_html(Page page, std::string_view json) {
  std::string text(pages::kPage);
  replace(text, "@STYLE@", pages::kStyle);
  replace(text, "@CHARTS@", std::string(pages::kCharts).append(pages::kTimeline));
  replace(text, "@PAGE@", page == Page::run ? pages::kReport : pages::kPlan);
  replace(text, "@DATA@", within_script(json));  // last, because it may contain anything
  return text;
}

}  // namespace strata::launcher
