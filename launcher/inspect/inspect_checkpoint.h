#pragma once
#include <filesystem>
#include <optional>
#include <ostream>

#include "runtime/checkpoint/reader.h"

namespace strata::launcher {

// Print a line for each tensor, or only for those with damage or non-finite numbers.
enum class Tensors { all, wrong };

// The checkpoint that a path means: the folder itself, or the newest undamaged one in a folder of checkpoints; each
// newer one that was passed over gets a line on stderr that says why. nullopt if the path is neither.
std::optional<runtime::Checkpoint> checkpoint_at(const std::filesystem::path& path);

// Lists the checkpoints in a folder, newest first, and marks the best one and damaged ones. Prints nothing if the
// folder holds none or is itself one.
void list_folder(const std::filesystem::path& folder, std::ostream& out);

// Prints step, model and sizes, then one line per tensor and kind of state (all of them, or those with something
// wrong). Verifies every checksum. Throws Error{corrupt} at the end if one does not match.
void inspect_checkpoint(const runtime::Checkpoint& checkpoint, Tensors tensors, std::ostream& out);

// Prints where two checkpoints differ: one line per tensor and kind of state that differs, with its first difference.
void compare_checkpoints(const runtime::Checkpoint& first, const runtime::Checkpoint& second, std::ostream& out);

}  // namespace strata::launcher
