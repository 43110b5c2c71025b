#pragma once
#include <filesystem>
#include <ostream>

namespace strata::launcher {

// A line for each tensor, or for those alone with which something is wrong: damage, numbers that are not finite.
enum class Tensors { all, wrong };

// `strata inspect`: what a checkpoint, a token file, a safetensors file or a Hugging Face directory holds, as text into
// `out`. Returns the exit code; throws Error{corrupt} where the file is not what it says.
int inspect(const std::filesystem::path& path, Tensors tensors, std::ostream& out);
// How two checkpoints differ.
int inspect(const std::filesystem::path& a, const std::filesystem::path& b, std::ostream& out);

}  // namespace strata::launcher
