#pragma once
#include <filesystem>
#include <optional>

#include "base/progress.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// True if `path` is a single checkpoint: a folder with a manifest.
bool is_checkpoint(const std::filesystem::path& path);

// Opens the newest undamaged checkpoint of a folder, for training to resume from; every block is read and verified, on
// `threads` threads. Calls `note` for each checkpoint that was passed over, with the reason. nullopt if the folder has
// none. Throws Error{corrupt} if all are damaged, and Error{failed} if one cannot be read, which does not mean that it
// is damaged.
std::optional<Checkpoint> newest_undamaged(const std::filesystem::path& folder, int threads, const Note& note,
                                           const Advance& advance = {});

// The checkpoints that a run may resume from, by checkpoint.resume and checkpoint.dir: the newest first, or only the
// named one (`one`). If `found` is empty, the run starts from the beginning. Throws Error{failed} if the folder cannot
// be read.
struct ResumeChoice {
  bool one = false;
  std::filesystem::path folder;
  std::vector<FoundCheckpoint> found;
};
ResumeChoice checkpoints_to_resume(const Recipe::Checkpoint& recipe);

// "passed over FOLDER: why", in one line; files in the folder are named without its path.
std::string passed_over(const FoundCheckpoint& found);
// "none of its 3 checkpoints is intact".
std::string all_damaged_text(std::size_t count);
// Throws Error{corrupt}: "FOLDER: none of its N checkpoints is intact ...: ADVICE".
[[noreturn]] void fail_all_damaged(const std::filesystem::path& folder, std::size_t count, std::string_view advice);

}  // namespace strata::runtime
