#pragma once
#include <memory>

#include "text/json/json.h"
#include "text/split/pre_tokenizer.h"

namespace strata::text {

// "Split" of a tokenizer.json: a regular expression or a string, its behavior, inverted or not.
std::unique_ptr<PreTokenizer> make_split(const Json& json);
// GPT-2's pattern, which ByteLevel includes.
std::unique_ptr<PreTokenizer> gpt2_split();
// "Whitespace": splits into words, and into sequences of other characters that are not white space.
std::unique_ptr<PreTokenizer> whitespace_split();

}  // namespace strata::text
