#pragma once
// launcher/ is the program: main.cc has every command with its options, and a command is a file of its own (train.cc,
// plan.cc, eval.cc, ...). rank/ is a process among ranks (rank/run_as_rank.h first), measure/ times this machine
// (measure/bench.h), inspect/ looks into files (inspect/inspect.h). What is said to the user goes through printable.h;
// what may be written over, overwrite.h says. There is no mathematics and no planning here.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

struct TrainOptions {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  bool force = false;  // report.* are written over whatever they are
};

// `strata train`: one rank of a run. Returns the exit code; throws Error.
int train(const TrainOptions& options);

}  // namespace strata::launcher
