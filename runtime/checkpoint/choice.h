#pragma once
#include <filesystem>
#include <optional>

#include "base/note.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Whether a path is one checkpoint: a folder with a manifest.
bool is_checkpoint(const std::filesystem::path& path);

// The newest checkpoint of a folder that is whole, as a training resumes from it: every block was read, on `threads`
// threads. `note` is told which were passed over and why; nullopt: the folder holds none. Throws Error{corrupt} if none
// of those there is whole, and Error{failed} if one cannot be read: that is no damage.
std::optional<Checkpoint> newest_whole(const std::filesystem::path& folder, int threads, const Note& note,
                                       const Advance& advance = {});

// What a run may resume from, as checkpoint.resume and checkpoint.dir say: the newest first, or `one` that is named and
// no other. Nothing: it starts anew. Throws Error{failed} if the folder cannot be read.
struct ResumeChoice {
  bool one = false;
  std::filesystem::path folder;
  std::vector<FoundCheckpoint> found;
};
ResumeChoice checkpoints_to_resume(const Recipe::Checkpoint& recipe);

// "passed over FOLDER: why", in one line; files of the folder by their names.
std::string passed_over(const FoundCheckpoint& found);
// "none of its 3 checkpoints is whole".
std::string none_whole_text(std::size_t count);
// Throws Error{corrupt}: "FOLDER: none of its N checkpoints is whole ...: ADVICE".
[[noreturn]] void none_is_whole(const std::filesystem::path& folder, std::size_t count, std::string_view advice);

}  // namespace strata::runtime
