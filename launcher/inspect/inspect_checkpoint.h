#pragma once
#include <filesystem>
#include <optional>
#include <ostream>

namespace strata::launcher {

// The checkpoint that a path means: the folder of one, or the newest in order of a folder of several. nullopt: neither.
std::optional<std::filesystem::path> checkpoint_at(const std::filesystem::path& path);

// Step, model, sizes and a line a tensor and kind of state, with every checksum verified. Throws Error{corrupt} at the
// end where one does not hold.
void inspect_checkpoint(const std::filesystem::path& path, std::ostream& out);

// Where two checkpoints differ: a line for each tensor and kind of state that does, with its first difference.
void compare_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, std::ostream& out);

}  // namespace strata::launcher
