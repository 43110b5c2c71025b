#pragma once
#include <functional>
#include <string>
#include <vector>

#include "text/json/json.h"

namespace strata::text {

// "decoder" of a tokenizer.json: rewrites a list of tokens so that, joined, it is the text. Immutable.
using Decoder = std::function<void(std::vector<std::string>& tokens)>;

// Builds the decoders; sequences are flattened. Throws Error{usage} if a component is not supported.
std::vector<Decoder> make_decoders(const Json& json);

}  // namespace strata::text
