#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "models/model.h"

namespace strata::models {

struct PredictionTransformSpec {
  std::string name;  // of the dense layer, before ".weight" and ".bias"
  std::size_t hidden;
  float deviation;
};

// What a masked language model does to its last block's output before the head normalises it and asks for words:
// y = gelu(x W + b), with the GELU of erf.
std::unique_ptr<Unit> make_prediction_transform(const PredictionTransformSpec& spec, const RunShape& run);

}  // namespace strata::models
