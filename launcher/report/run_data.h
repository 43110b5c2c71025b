#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

namespace strata::launcher {

// The files that a run left; a path is empty if there is no such file.
struct RunFiles {
  std::filesystem::path steps, events, summary, plan, trace, recipe;
};
// The files in a report.dir, or next to its report.jsonl; any other .jsonl stands alone. Throws Error{usage} if there
// are none.
RunFiles files_of_run(const std::filesystem::path& from);

// The data of a run's page as JSON. If there are more than `most` steps, it keeps the last one and those with the
// smallest or largest loss nearby. A part whose file is truncated or damaged is left out, and a note says why. If
// nothing is left, throws Error{corrupt} that names file and line.
std::string run_data(const RunFiles& files, std::size_t most = 4000);

}  // namespace strata::launcher
