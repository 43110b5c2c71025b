#pragma once
#include <memory>

#include "models/model.h"
#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// The weights of a source as a run with `model` has them: what lies in its pools of what is quantised is quantised, and
// read as the values that this stands for. The model outlives it.
std::unique_ptr<WeightSource> quantised_weights(std::unique_ptr<WeightSource> weights, const models::Model& model);

}  // namespace strata::runtime
