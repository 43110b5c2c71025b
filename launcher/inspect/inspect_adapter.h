#pragma once
#include <filesystem>
#include <ostream>

#include "models/files/config.h"
#include "models/files/safetensors.h"

namespace strata::launcher {

// For `strata inspect` of a folder of peft's: what its configuration says, and a line for each thing that would keep it
// from being read whatever the model is: keys that are not supported, tensors without their other factor, of ranks that
// do not go together, or of integers.
void print_adapter(const std::filesystem::path& folder, std::ostream& out);

// For a Hugging Face directory: how many matrices are in 4 bits, and a line for each that is broken. Prints nothing if
// none is, and config.json does not say so either.
void print_quantisation(const models::Safetensors& file, const models::Config& config, std::ostream& out);

}  // namespace strata::launcher
