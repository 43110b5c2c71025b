#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/numeric/nf4.h"
#include "device/numeric/storage_format.h"
#include "models/files/config.h"
#include "models/files/safetensors.h"

namespace strata::models {

// The quantization_config of a model whose linear layers bitsandbytes quantised to NF4.
struct Quantisation {
  device::StorageFormat format;      // nf4, or nf4_plain without double quantisation
  std::vector<std::string> skipped;  // modules that are not quantised
};
// nullopt if nothing is quantised, or if families/unsupported_keys.cc refuses the method. Throws Error{usage} for
// bitsandbytes' other formats, and for a regular expression in the list of modules that would be understood differently
// from transformers.
std::optional<Quantisation> quantisation_of(const Config& config);

// True if the tensor belongs to one of these modules, as transformers interprets llm_int8_skip_modules: each is a
// regular expression that matches the beginning of a name up to a dot, or the end of a name. Precondition:
// quantisation_of() has accepted them.
bool lies_in(std::span<const std::string> modules, std::string_view tensor);

// A matrix as bitsandbytes stores it in NF4: the codes under its own name, NAME.absmax, NAME.quant_map,
// NAME.quant_state.bitsandbytes__nf4 and, with double quantisation, NAME.nested_absmax and NAME.nested_quant_map.
struct Nf4Tensor {
  const StoredTensor* codes;
  const StoredTensor* scales;
  const StoredTensor* shared = nullptr;  // null: scales are floats
  float offset = 0;
  std::vector<std::uint64_t> shape;
  std::string dtype;  // to which bitsandbytes unpacks the matrix, as PyTorch names it; empty: none that is known

  device::StorageFormat format() const {
    return shared ? device::StorageFormat::nf4 : device::StorageFormat::nf4_plain;
  }
  std::uint64_t elements() const;
  // The bytes with the codes of elements [begin, begin + count).
  std::span<const std::byte> codes_of(std::uint64_t begin, std::uint64_t count) const;
  // The block of format() that begins at element `begin`, a multiple of device::kNf4Block.
  void read_block(std::uint64_t begin, std::span<std::byte> block) const;
};

// True if bitsandbytes unpacks matrices to a dtype of this name.
bool is_unpacked_dtype(std::string_view name);
// True if the file stores the tensor `name` in NF4.
bool is_nf4(const Safetensors& file, const std::string& name);
// Throws Error{usage} for settings that are not supported, Error{corrupt} for tensors that contradict each other.
Nf4Tensor nf4_tensor(const Safetensors& file, const std::string& name);
// True if a tensor is a companion (scales, maps or state) of an NF4 tensor.
bool belongs_to_nf4(const Safetensors& file, std::string_view name);

}  // namespace strata::models
