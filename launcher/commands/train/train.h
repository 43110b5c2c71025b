#pragma once
// launcher/commands/train/ is `strata train`: from the recipe to the summary (train.cc), its steps and what happens
// between them (training.h), and its checkpoints (checkpoints.h).

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

struct TrainOptions {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  bool force = false;  // overwrites report.* files, whatever they are
};

// `strata train`: runs one rank. Returns the exit code; throws Error.
int train(const TrainOptions& options);

}  // namespace strata::launcher
