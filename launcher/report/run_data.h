#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

namespace strata::launcher {

// What a run left behind; empty where it is not there.
struct RunFiles {
  std::filesystem::path steps, events, summary, plan, trace, recipe;
};
// Of a report.dir, or of its report.jsonl; of any other .jsonl that alone. Throws Error{usage} where there is none.
RunFiles files_of_run(const std::filesystem::path& from);

// What the page of a run draws, as JSON. Of more than `most` steps those are kept in which a loss was the least or the
// largest of its neighbourhood, and the last. A part whose file is cut off or damaged is left out, and a note says why;
// if nothing is left, throws Error{corrupt} naming file and line.
std::string run_data(const RunFiles& files, std::size_t most = 4000);

}  // namespace strata::launcher
