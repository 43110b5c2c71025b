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

// A model's quantised matrices as the tensors of bitsandbytes' NF4, which transformers loads: NAME holds the codes,
// further tensors the scales.
class QuantisedExport {
 public:
  // `dtype`: of the tensors that are not quantised.
  QuantisedExport(const models::Model& model, const WeightSource& weights, device::DType dtype);

  // Whether the parameter is quantised in the source.
  bool has(std::size_t unit, std::size_t parameter) const { return formats_[unit][parameter].has_value(); }
  bool any() const;
  // The tensors of a parameter, in the order of write()'s index.
  std::vector<models::TensorSpec> tensors(std::size_t unit, std::size_t parameter) const;
  using Sink = std::function<void(std::span<const std::byte>)>;
  void write(std::size_t unit, std::size_t parameter, std::size_t tensor, const Sink& sink) const;
  // Adds quantization_config to a config.json.
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
