#pragma once
#include <string>

#include "models/families/encoder.h"

namespace strata::models {

// Reads BERT's config and names its encoder's tensors. RoBERTa has the same keys and names. `words`: the default of
// vocab_size.
EncoderSpec read_bert(const Config& config, std::size_t words);
void name_bert(EncoderSpec& spec, const std::string& prefix);

}  // namespace strata::models
