#pragma once
#include <string>

#include "models/families/encoder.h"

namespace strata::models {

// What BERT's config says, and what its encoder's tensors are called: RoBERTa has the same keys and names. `words`: of
// a config that names no vocab_size.
EncoderSpec read_bert(const Config& config, std::size_t words);
void name_bert(EncoderSpec& spec, const std::string& prefix);

}  // namespace strata::models
