#pragma once
#include "runtime/objective/rules.h"

namespace strata::runtime {

// Causal language modelling: every row predicts the next token of its document.
extern const ObjectiveRules kCausalLm;

}  // namespace strata::runtime
