#pragma once
#include <memory>

#include "text/json/json.h"
#include "text/split/pre_tokenizer.h"

namespace strata::text {

// "Split" of a tokenizer.json: a regular expression or a string, its behavior, inverted or not.
std::unique_ptr<PreTokenizer> make_split(const Json& json);
// The pattern of GPT-2, which ByteLevel brings along.
std::unique_ptr<PreTokenizer> gpt2_split();
// "Whitespace": runs of word characters, and of what is neither word nor space.
std::unique_ptr<PreTokenizer> whitespace_split();

}  // namespace strata::text
