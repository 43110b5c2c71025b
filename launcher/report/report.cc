#include "launcher/report/report.h"

#include <fmt/format.h>

#include "base/files/atomic_file.h"
#include "base/quantity.h"
#include "launcher/overwrite.h"
#include "launcher/report/page.h"
#include "launcher/report/run_data.h"
#include "launcher/screen/printable.h"

namespace strata::launcher {

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
  say("{} written: {}, for any browser", options.out.string(), bytes_text(text.size()));
  return 0;
}

}  // namespace strata::launcher
