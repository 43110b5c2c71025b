#pragma once
#include <filesystem>
#include <ostream>

#include "models/files/config.h"
#include "models/files/safetensors.h"

namespace strata::launcher {

// For `strata inspect` of a peft folder: what its configuration says, and a line for each thing that prevents reading
// it with any model: unsupported keys, and tensors that lack their other factor, have ranks that do not match, or hold
// integers.
void print_adapter(const std::filesystem::path& folder, std::ostream& out);

// For a Hugging Face directory: how many matrices are in 4 bits, and a line for each that is broken. Prints nothing if
// none is in 4 bits and config.json does not say so.
void print_quantisation(const models::Safetensors& file, const models::Config& config, std::ostream& out);

}  // namespace strata::launcher
