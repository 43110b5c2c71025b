#pragma once
#include <span>
#include <string>

#include "models/model.h"

namespace strata::runtime {

// Throws Error{usage} for a pattern of training.freeze that is of no tensor of the model, naming those that are
// nearest, and if nothing is left to train.
void require_freezable(const models::Model& model, std::span<const std::string> patterns);

// Throws Error{usage} if model.frozen_format names a format of which the model has nothing.
void require_quantised(const models::Model& model);

}  // namespace strata::runtime
