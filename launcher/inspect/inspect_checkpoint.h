#pragma once
#include <filesystem>
#include <optional>
#include <ostream>

#include "runtime/checkpoint/reader.h"

namespace strata::launcher {

// A line for each tensor, or for those alone with which something is wrong: damage, numbers that are not finite.
enum class Tensors { all, wrong };

// The checkpoint that a path means: the folder of one, or the newest of a folder of several that is whole, in front of
// which a line on stderr says of each that was passed over why. nullopt: neither.
std::optional<runtime::Checkpoint> checkpoint_at(const std::filesystem::path& path);

// The checkpoints of a folder, the newest first, with which one is the best and which are damaged. Nothing if it holds
// none, or is itself one.
void list_folder(const std::filesystem::path& folder, std::ostream& out);

// Step, model and sizes, then one line per tensor and kind of state, of all or of what is wrong, with every checksum
// verified. Throws Error{corrupt} at the end if one does not hold.
void inspect_checkpoint(const runtime::Checkpoint& checkpoint, Tensors tensors, std::ostream& out);

// Where two checkpoints differ: a line for each tensor and kind of state that does, with its first difference.
void compare_checkpoints(const runtime::Checkpoint& first, const runtime::Checkpoint& second, std::ostream& out);

}  // namespace strata::launcher
