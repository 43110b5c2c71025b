#pragma once
// launcher/inspect/ looks into files: what one is and holds (here), checkpoints tensor by tensor (inspect_checkpoint.h,
// statistics.h).
#include <filesystem>
#include <ostream>

#include "launcher/inspect/inspect_checkpoint.h"

namespace strata::launcher {

// `strata inspect`: what a checkpoint, a token file, a safetensors file or a Hugging Face directory holds, as text into
// `out`. Returns the exit code; throws Error{corrupt} if the file is not what it says.
int inspect(const std::filesystem::path& path, Tensors tensors, std::ostream& out);
// How two checkpoints differ.
int inspect(const std::filesystem::path& a, const std::filesystem::path& b, std::ostream& out);

}  // namespace strata::launcher
