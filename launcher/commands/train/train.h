#pragma once
// launcher/commands/train/ is `strata train`: from the recipe to the summary (train.cc), its steps and what happens
// between two of them (training.h), its checkpoints (checkpoints.h).

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
