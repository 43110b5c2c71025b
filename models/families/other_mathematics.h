#pragma once
#include "models/files/config.h"

namespace strata::models {

// What a config.json of a known family may say that no family here computes: experts, soft caps, other scalings and
// positions, quantised weights, draft models. Throws Error{usage} with a sentence of its own for each key (or
// architecture) whose value is not the one that changes nothing, whether or not transformers' class of that model_type
// reads the key; marks the others as read.
void refuse_other_mathematics(const Config& config);

}  // namespace strata::models
