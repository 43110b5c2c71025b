#pragma once
// launcher/commands/ has a file or a room per command: launcher/command_line/ reads its options, and what it returns is
// the exit code.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

struct EvalOptions {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  std::optional<std::filesystem::path> json;
  bool force = false;  // json is written over whatever it is
};

// `strata eval`: loss and perplexity on data.validation, by one rank of several. Prints them, and writes them as JSON.
// Returns the exit code; throws Error.
int eval(const EvalOptions& options);

}  // namespace strata::launcher
