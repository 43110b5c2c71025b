#pragma once
// launcher/inspect/ looks into files: what a file is and holds (here), and checkpoints tensor by tensor
// (inspect_checkpoint.h, statistics.h).
#include <filesystem>
#include <ostream>

#include "launcher/inspect/inspect_checkpoint.h"

namespace strata::launcher {

// `strata inspect`: prints what a checkpoint, token file, safetensors file or Hugging Face directory holds to `out`.
// Returns the exit code; throws Error{corrupt} if the file does not hold what it claims.
int inspect(const std::filesystem::path& path, Tensors tensors, std::ostream& out);
// Prints how two checkpoints differ.
int inspect(const std::filesystem::path& a, const std::filesystem::path& b, std::ostream& out);

}  // namespace strata::launcher
