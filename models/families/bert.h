#pragma once
#include <string>

#include "models/families/encoder.h"

namespace strata::models {

// What BERT's config says, and what its encoder's tensors are called: RoBERTa has the same keys and names.
EncoderSpec read_bert(const Config& config);
void name_bert(EncoderSpec& spec, const std::string& prefix);

}  // namespace strata::models
