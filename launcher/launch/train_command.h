#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/note.h"
#include "device/device.h"
#include "launcher/launch/node/recipe_files.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// `train RECIPE --set ... --force`: the command after launch's --.
struct TrainCommand {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  bool force = false;

  // The command's words, with more keys set after the user's.
  std::vector<std::string> words(std::span<const std::string> more = {}) const;
  runtime::Recipe load() const;
};

// Throws Error{usage} if the words are another command or wrong.
TrainCommand read_train_command(std::span<const std::string> words);

// Replaces training.micro_batch_size = auto by a number for this many ranks on devices of that kind, as a key of the
// command, and reads the recipe again. unseen: called for files that are not on this machine. Does nothing if the
// recipe gives a number.
void settle_micro_batch(TrainCommand& command, runtime::Recipe& recipe, int ranks, device::Kind kind,
                        const Note& unseen);

// All files that the command and its recipe name: model, tokens, prompts, a checkpoint to start from, files of the
// control service. Not memory.nvme, which is checked separately, and not checkpoint.dir, which a run creates.
std::vector<RecipeFile> recipe_files(const TrainCommand& command, const runtime::Recipe& recipe);

// The lines of to_text() that differ from their defaults.
std::string changed_keys(const runtime::Recipe& recipe);

}  // namespace strata::launcher
