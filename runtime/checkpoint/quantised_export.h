#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/files/config.h"
#include "models/files/safetensors_writer.h"
#include "models/model.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// A matrix in NF4 as bitsandbytes' tensors, which transformers loads: NAME, the codes, and what belongs to them.
class QuantisedExport {
 public:
  // dtype: of the other tensors.
  QuantisedExport(const models::Model& model, const WeightSource& weights, device::DType dtype);

  // Whether the parameter is quantised in the source.
  bool has(std::size_t unit, std::size_t parameter) const { return formats_[unit][parameter].has_value(); }
  bool any() const;
  // The tensors of a parameter in the order in which write() writes them.
  std::vector<models::TensorSpec> tensors(std::size_t unit, std::size_t parameter) const;
  using Sink = std::function<void(std::span<const std::byte>)>;
  void write(std::size_t unit, std::size_t parameter, std::size_t tensor, const Sink& sink) const;
  // Gives a config.json its quantization_config.
  void describe(models::Config& config) const;

 private:
  const models::Parameter& parameter_of(std::size_t unit, std::size_t parameter) const {
    return model_.units[unit]->parameters()[parameter];
  }
  std::string state_of(std::size_t unit, std::size_t parameter) const;

  const models::Model& model_;
  const WeightSource& weights_;
  device::DType dtype_;
  std::vector<std::vector<std::optional<device::StorageFormat>>> formats_;  // by unit and parameter
};

}  // namespace strata::runtime
