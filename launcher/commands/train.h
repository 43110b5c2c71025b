#pragma once
// launcher/commands/ has a file or a room per command: launcher/command_line/ reads its options, and what it returns is
// the exit code.

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
