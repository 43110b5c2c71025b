#pragma once
#include <memory>

#include "models/model.h"
#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// The weights of a source as a run of `model` sees them: those in quantised pools are quantised and dequantised again.
// The model must outlive the result.
std::unique_ptr<WeightSource> quantised_weights(std::unique_ptr<WeightSource> weights, const models::Model& model);

}  // namespace strata::runtime
