#pragma once
#include <memory>

#include "models/model.h"
#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// Adds DoRA's initial magnitudes, which no source of a model has: the length of each row of W as the run has it
// (dequantised if W is quantised). B is zero then. The model must outlive the result.
std::unique_ptr<WeightSource> with_magnitudes(std::unique_ptr<WeightSource> weights, const models::Model& model);

}  // namespace strata::runtime
