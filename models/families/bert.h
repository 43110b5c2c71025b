#pragma once
#include <string>

#include "models/families/masked_lm.h"

namespace strata::models {

// What BERT's config says, and what its encoder's tensors are called: RoBERTa has the same keys and names.
MaskedLmSpec read_bert(const Config& config);
void name_bert(MaskedLmSpec& spec, const std::string& prefix);

}  // namespace strata::models
