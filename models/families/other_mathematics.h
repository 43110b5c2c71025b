#pragma once
#include "models/files/config.h"

namespace strata::models {

// Finds what a config.json of a known family may say but no family here computes: experts, soft caps, other scalings
// and positions, quantised weights, draft models. Throws Error{usage}, with a message of its own for each key (or
// architecture), if the value is not the one that changes nothing, whether or not transformers' class for that
// model_type reads the key. Marks the other keys as read.
void refuse_other_mathematics(const Config& config);

}  // namespace strata::models
