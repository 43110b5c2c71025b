#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/json/json.h"

namespace strata::text {

// "decoder" of a tokenizer.json: rewrites a list of tokens so that, joined, it is the text. Immutable.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// Builds the decoders; sequences are flattened. Throws Error{usage} if a component is not supported.
std::vector<std::unique_ptr<Decoder>> make_decoders(const Json& json);

}  // namespace strata::text
