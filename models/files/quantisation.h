#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/numeric/storage_format.h"
#include "models/files/config.h"

namespace strata::models {

// The quantization_config of a model whose linear layers bitsandbytes quantised to NF4.
struct Quantisation {
  device::StorageFormat format;      // nf4, or nf4_plain without double quantisation
  std::vector<std::string> skipped;  // modules that are not quantised
};
// nullopt if nothing is quantised, or in a way that is refused elsewhere (families/other_mathematics.cc). Throws
// Error{usage} for bitsandbytes' other formats.
std::optional<Quantisation> quantisation_of(const Config& config);

// Whether the tensor belongs to one of these modules, each named by the beginning or end of a name as in
// llm_int8_skip_modules.
bool lies_in(std::span<const std::string> modules, std::string_view tensor);

}  // namespace strata::models
