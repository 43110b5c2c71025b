#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// `train RECIPE --set ... --force`, as it stands behind launch's --.
struct TrainCommand {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  bool force = false;

  // The words again, with more keys set behind the user's.
  std::vector<std::string> words(std::span<const std::string> more = {}) const;
  runtime::Recipe load() const;
};

// Throws Error{usage} if the words are another command's, or wrong.
TrainCommand read_train_command(std::span<const std::string> words);

// The lines of to_text() that are not at their defaults.
std::string changed_keys(const runtime::Recipe& recipe);

}  // namespace strata::launcher
